package model

import (
	"errors"
	"fmt"
	"iter"
	"math"
)

// Point is what was measured of one configuration.
type Point struct {
	Config
	// Skipped says that it was not measured: a parameter had stopped to gain anything
	// before (R64), or it has too many threads for one host. It has no figures then.
	Skipped bool        `json:"skipped,omitzero"`
	Read    Performance `json:"read,omitzero"`
	Write   Performance `json:"write,omitzero"`
}

// Measurement is what was measured of one record size at one network distance, as
// far as it has come. It decides what is to be measured next (figure 9); it belongs
// to one goroutine.
type Measurement struct {
	RecordSize  int    `json:"record_size"`  // bytes
	Distance    int    `json:"distance"`     // switches between client and server
	Network     string `json:"network"`      // what was modelled at this distance; none: nothing
	ClientCores int    `json:"client_cores"` // C
	QueueDepth  int    `json:"queue_depth"`  // Q
	// Threads is the most client and server threads together, where both run on one
	// host: more than it has processors take turns on them. 0: any number.
	Threads int     `json:"threads,omitzero"`
	Opt     int     `json:"opt,omitzero"` // the least queue depth of a search; 0: not known yet
	Points  []Point `json:"points"`       // in the order in which they are measured
}

// MaxDistance is the most switches between a client and a server.
const MaxDistance = 64

// Bounds of a measurement.
const (
	maxRecordSize = 1 << 30
	maxCores      = 1 << 10
	maxQueueDepth = 1 << 10
	maxText       = 256 // bytes of what is said of a network, a transport or a host
)

// Check refuses what cannot have been measured.
func (m *Measurement) Check() error {
	for _, v := range []struct {
		what        string
		value, most int
	}{
		{"record_size", m.RecordSize, maxRecordSize},
		{"distance", m.Distance, MaxDistance},
		{"client_cores", m.ClientCores, maxCores},
		{"queue_depth", m.QueueDepth, maxQueueDepth},
	} {
		if v.value < 1 || v.value > v.most {
			return fmt.Errorf("%s %d: want 1 to %d", v.what, v.value, v.most)
		}
	}
	if m.Threads != 0 && (m.Threads < 1 || m.Threads > 2*maxCores) {
		return fmt.Errorf("threads %d: want 0 for any number, to %d", m.Threads, 2*maxCores)
	}
	if m.Network == "" || len(m.Network) > maxText {
		return fmt.Errorf("network %.40q: want none, or a network in up to %d bytes", m.Network, maxText)
	}
	next, stop := iter.Pull(m.space().grid())
	defer stop()
	for i, p := range m.Points {
		at, ok := next()
		if !ok || p.Config != at {
			return fmt.Errorf("point %d is %v: want %v", i, p.Config, at)
		}
		if p.Skipped && (p.Read != Performance{} || p.Write != Performance{}) {
			return fmt.Errorf("point %v is skipped and has figures", at)
		}
		if !p.Skipped {
			if err := errors.Join(p.Read.check(), p.Write.check()); err != nil {
				return fmt.Errorf("point %v: %w", at, err)
			}
		}
	}
	if m.Opt != m.opt() {
		return fmt.Errorf("opt %d: the points say %d", m.Opt, m.opt())
	}
	return nil
}

func (p Performance) check() error {
	if !(p.LatencyUs > 0 && p.LatencyUs <= math.MaxFloat64 && p.Mops > 0 && p.Mops <= math.MaxFloat64) {
		return fmt.Errorf("a latency of %v us and %v Mop/s", p.LatencyUs, p.Mops)
	}
	return nil
}

// space is what is measured: from a queue depth of 1, whatever opt is (A18).
func (m *Measurement) space() Space {
	return Space{C: m.ClientCores, B: BatchLimit(m.RecordSize), Opt: 1, Q: m.QueueDepth}
}

// Size is how many configurations are measured at most.
func (m *Measurement) Size() int {
	n := 0
	for range m.space().grid() {
		n++
	}
	return n
}

// Next is the configuration to measure now. It goes on until all are, or need not
// be; then it returns false, and the measurement is complete.
func (m *Measurement) Next() (Config, bool) {
	i := 0
	for at := range m.space().grid() {
		if i++; i <= len(m.Points) {
			continue
		}
		if m.Threads > 0 && at.C+at.S > m.Threads || m.ended(at) {
			m.Points = append(m.Points, Point{Config: at, Skipped: true})
			continue
		}
		return at, true
	}
	return Config{}, false
}

// Report takes what was measured of the configuration that Next returned.
func (m *Measurement) Report(at Config, read, write Performance) error {
	if next, ok := m.Next(); !ok || next != at {
		return fmt.Errorf("model: %v was measured, but %v comes next", at, next)
	}
	if err := errors.Join(read.check(), write.check()); err != nil {
		return fmt.Errorf("model: measured of %v: %w", at, err)
	}
	m.Points = append(m.Points, Point{Config: at, Read: read, Write: write})
	m.Opt = m.opt()
	return nil
}

// Doubtful says whether a measurement of the configuration that Next returned would
// end a line: noise would do so for good, so it is worth measuring again.
func (m *Measurement) Doubtful(at Config, read, write Performance) bool {
	now := Point{Config: at, Read: read, Write: write}
	for _, before := range m.before(at) {
		if before != nil && !now.improves(before) {
			return true
		}
	}
	return false
}

// before are the last points that were measured before a configuration along c, s, b
// and q, or nil.
func (m *Measurement) before(at Config) (last [4]*Point) {
	for i := range m.Points {
		if p := &m.Points[i]; !p.Skipped {
			if along, ok := p.along(at); ok {
				last[along] = p
			}
		}
	}
	return last
}

// ended says that, along one of its axes, a configuration lies beyond one that had
// gained nothing over the one before it (R64): neither throughput nor latency, of
// reads nor of writes (A22).
func (m *Measurement) ended(at Config) bool {
	var last [4]*Point // measured ones before at, along c, s, b and q
	for i := range m.Points {
		p := &m.Points[i]
		if p.Skipped {
			continue
		}
		along, ok := p.along(at)
		if !ok {
			continue
		}
		if last[along] != nil && !p.improves(last[along]) {
			return true
		}
		last[along] = p
	}
	return false
}

// along is the one axis on which a point lies before a configuration. Batches of one
// are one-sided, another way to the server: they are on no axis with those of more.
func (p *Point) along(at Config) (axis int, ok bool) {
	if (p.B == 1) != (at.B == 1) {
		return 0, false
	}
	there := [4]int{at.C, at.S, at.B, at.Q}
	axis = -1
	for i, v := range [4]int{p.C, p.S, p.B, p.Q} {
		if v == there[i] {
			continue
		}
		if v > there[i] || axis >= 0 {
			return 0, false
		}
		axis = i
	}
	return axis, axis >= 0
}

// improves says whether anything of a point is better than before by more than noise.
func (p *Point) improves(before *Point) bool {
	better := func(now, then Performance) bool {
		return now.Mops >= then.Mops*(1+noise) || now.LatencyUs <= then.LatencyUs*(1-noise)
	}
	return better(p.Read, before.Read) || better(p.Write, before.Write)
}

// Ops are the operations that an SLO is of. Of others it says nothing (A14).
type Ops int

// What an SLO may be of.
const (
	Both   Ops = iota // reads and writes alike
	Reads             // only
	Writes            // only
)

// String names the operations.
func (o Ops) String() string {
	switch o {
	case Reads:
		return "reads"
	case Writes:
		return "writes"
	}
	return "both"
}

// of is what operations achieve; of both, what reads and writes achieve alike.
func (p *Point) of(ops Ops) Performance {
	switch ops {
	case Reads:
		return p.Read
	case Writes:
		return p.Write
	}
	return p.Read.worse(p.Write)
}

// opt is the largest queue depth, from 1 on, that improves both latency and
// throughput over the one before, with one thread and one-sided (R48, A18); 0 until
// that is known.
func (m *Measurement) opt() int {
	opt, last := 0, Performance{}
	for i := range m.Points {
		p := &m.Points[i]
		if p.C != 1 || p.S != 0 || p.B != 1 {
			break
		}
		now := p.of(Both)
		if opt > 0 && (p.Skipped || now.LatencyUs > last.LatencyUs*(1-noise) || now.Mops < last.Mops*(1+noise)) {
			break
		}
		opt, last = p.Q, now
	}
	return opt
}

// Complete says whether all has been measured.
func (m *Measurement) Complete() bool { return len(m.Points) == m.Size() }

// Surface is SurfaceOf what reads and writes achieve alike.
func (m *Measurement) Surface() (*Surface, error) { return m.SurfaceOf(Both) }

// SurfaceOf makes a surface of what operations achieve. The measurement has to be
// complete.
func (m *Measurement) SurfaceOf(ops Ops) (*Surface, error) {
	if !m.Complete() {
		return nil, fmt.Errorf("model: %d of %d configurations are measured of records of %d bytes", len(m.Points), m.Size(), m.RecordSize)
	}
	measured := map[Config]Performance{}
	for i := range m.Points {
		if p := &m.Points[i]; !p.Skipped {
			measured[p.Config] = p.of(ops)
		}
	}
	space := m.space()
	space.Opt = m.Opt
	return NewSurface(space, measured)
}
