package model

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Point is the measurement of one configuration.
type Point struct {
	Config
	// Skipped marks a configuration that was not measured, and has no figures: increasing a
	// parameter had stopped to gain anything (R64), or it has too many threads for one
	// host.
	Skipped bool        `json:"skipped,omitzero"`
	Read    Performance `json:"read,omitzero"`
	Write   Performance `json:"write,omitzero"`
}

// Measurement holds the measurements of one record size at one network distance, complete
// or not. It decides what to measure next (figure 9). One goroutine owns it.
type Measurement struct {
	RecordSize  int    `json:"record_size"`  // bytes
	Distance    int    `json:"distance"`     // network switches between client and server
	Network     string `json:"network"`      // modelled network at this distance, or none
	ClientCores int    `json:"client_cores"` // C
	QueueDepth  int    `json:"queue_depth"`  // Q
	// Threads is the maximum of client and server threads together, if both run on one
	// host: more threads than processors would take turns. 0: no limit.
	Threads int     `json:"threads,omitzero"`
	Opt     int     `json:"opt,omitzero"` // least queue depth of a search; 0: unknown yet
	Points  []Point `json:"points"`       // in the order of measurement
}

// MaxDistance is the maximum number of switches between a client and a server.
const MaxDistance = 64

// Bounds of a measurement.
const (
	maxRecordSize = 1 << 30
	maxCores      = 1 << 10
	maxQueueDepth = 1 << 10
	maxText       = 256 // bytes of a network's, transport's or host's name
)

// Check returns an error if the measurement is invalid.
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
		return fmt.Errorf("opt %d: the points give %d", m.Opt, m.opt())
	}
	return nil
}

func (p Performance) check() error {
	if !(p.LatencyUs > 0 && p.LatencyUs <= math.MaxFloat64 && p.Mops > 0 && p.Mops <= math.MaxFloat64) {
		return fmt.Errorf("latency %v us, throughput %v Mop/s: want finite numbers above 0", p.LatencyUs, p.Mops)
	}
	return nil
}

// space is the measured space. Queue depths begin at 1, whatever opt is (A18).
func (m *Measurement) space() Space {
	return Space{C: m.ClientCores, B: BatchLimit(m.RecordSize), Opt: 1, Q: m.QueueDepth}
}

// Size returns the maximum number of configurations to measure.
func (m *Measurement) Size() int {
	n := 0
	for range m.space().grid() {
		n++
	}
	return n
}

// Next returns the configuration to measure now. It returns false if the measurement is
// complete.
func (m *Measurement) Next() (Config, bool) {
	i := 0
	for at := range m.space().grid() {
		if i++; i <= len(m.Points) {
			continue
		}
		ended := m.Threads > 0 && at.C+at.S > m.Threads
		if !ended {
			_, ended = m.before(at)
		}
		if ended {
			m.Points = append(m.Points, Point{Config: at, Skipped: true})
			continue
		}
		return at, true
	}
	return Config{}, false
}

// Report adds the figures of the configuration that Next returned.
func (m *Measurement) Report(at Config, read, write Performance) error {
	if next, ok := m.Next(); !ok || next != at {
		return fmt.Errorf("model: result of configuration %v, want that of the next one, %v", at, next)
	}
	if err := errors.Join(read.check(), write.check()); err != nil {
		return fmt.Errorf("model: result of configuration %v: %w", at, err)
	}
	m.Points = append(m.Points, Point{Config: at, Read: read, Write: write})
	m.Opt = m.opt()
	return nil
}

// Doubtful reports whether these figures of the configuration that Next returned would end
// a line of measurements. It is worth repeating the measurement, since noise would end the
// line for good.
func (m *Measurement) Doubtful(at Config, read, write Performance) bool {
	now := Point{Config: at, Read: read, Write: write}
	last, _ := m.before(at)
	return slices.ContainsFunc(last[:], func(p *Point) bool { return p != nil && !now.improves(p) })
}

// before returns the last points measured before a configuration along c, s, b and q; nil
// where there is none. ended says that one of those before it gained nothing over its
// predecessor (R64): neither throughput nor latency, of neither reads nor writes (A22).
func (m *Measurement) before(at Config) (last [4]*Point, ended bool) {
	for i := range m.Points {
		p := &m.Points[i]
		if along, ok := p.along(at); ok && !p.Skipped {
			ended = ended || last[along] != nil && !p.improves(last[along])
			last[along] = p
		}
	}
	return last, ended
}

// along returns the one axis on which a point lies before a configuration. Batches of one
// are one-sided, so they share no axis with larger ones.
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

// improves reports whether any figure of a point is better than before's by more than
// noise.
func (p *Point) improves(before *Point) bool {
	better := func(now, then Performance) bool {
		return now.Mops >= then.Mops*(1+noise) || now.LatencyUs <= then.LatencyUs*(1-noise)
	}
	return better(p.Read, before.Read) || better(p.Write, before.Write)
}

// Ops are the operations that an SLO applies to. Other operations are not bounded (A14).
type Ops int

const (
	Both Ops = iota // both reads and writes
	Reads
	Writes
)

func (o Ops) String() string {
	switch o {
	case Reads:
		return "reads"
	case Writes:
		return "writes"
	}
	return "both"
}

// of returns the performance of operations; for Both the worse of reads and writes.
func (p *Point) of(ops Ops) Performance {
	switch ops {
	case Reads:
		return p.Read
	case Writes:
		return p.Write
	}
	return p.Read.Worse(p.Write)
}

// opt returns the largest queue depth up to which each step improves both latency and
// throughput, with one thread and one-sided (R48, A18); 0 if unknown yet.
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

// Complete reports whether everything has been measured.
func (m *Measurement) Complete() bool { return len(m.Points) == m.Size() }

// Surface returns SurfaceOf(Both).
func (m *Measurement) Surface() (*Surface, error) { return m.SurfaceOf(Both) }

// SurfaceOf makes the surface of these operations. The measurement must be complete.
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
