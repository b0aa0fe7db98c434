package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Observation is what a configuration gives, as factors of what a model predicts for it.
type Observation struct {
	Config
	Latency float64 // 2: twice the predicted latency
	Mops    float64 // 0.5: half of the predicted throughput
}

// MaxFactor bounds the factors of an observation, and 1/MaxFactor is the least: what lies outside
// is another machine's model, or a fault.
const MaxFactor = 64

// maxTrusted bounds the factors that another machine or network explains, and 1/maxTrusted is the least.
const maxTrusted = 8

// Trusted reports whether the factors can be those of another machine or network. Others come from
// disturbances, such as a processor that something else used, and say nothing about the model.
func (o Observation) Trusted() bool {
	for _, f := range []float64{o.Latency, o.Mops} {
		if !(f >= 1.0/maxTrusted && f <= maxTrusted) {
			return false
		}
	}
	return true
}

// Check returns an error for a configuration or factors out of range.
func (o Observation) Check() error {
	if c := o.Config; c.C < 1 || c.C > maxCores || c.S < 0 || c.S > c.C || c.B < 1 || c.B > MaxBatchBytes || c.Q < 1 || c.Q > maxQueueDepth {
		return fmt.Errorf("configuration %v: out of bounds", c)
	}
	for _, f := range []float64{o.Latency, o.Mops} {
		if !(f >= 1.0/MaxFactor && f <= MaxFactor) {
			return fmt.Errorf("factor %v of configuration %v: want %v to %v", f, o.Config, 1.0/MaxFactor, MaxFactor)
		}
	}
	return nil
}

// Observe returns the observation of a configuration for which p was predicted and got was
// measured, within the bounds of factors.
func Observe(at Config, p, got Performance) Observation {
	within := func(f float64) float64 { return min(max(f, 1.0/MaxFactor), MaxFactor) }
	return Observation{Config: at, Latency: within(got.LatencyUs / p.LatencyUs), Mops: within(got.Mops / p.Mops)}
}

// Scaling corrects the predictions of a model by observations of some configurations. The factors
// of the others are means of the logarithms of the observed ones, which count the more the nearer
// they are: each parameter is a coordinate by its logarithm, and one-sided access is far from
// batches, as it uses other parts of the machine. Without observations all factors are 1.
type Scaling []Observation

// withTrusted returns the scaling with one more observation, if it is trusted.
func (s Scaling) withTrusted(o Observation) Scaling {
	if !o.Trusted() {
		return s
	}
	return append(s, o)
}

// At returns the factors of a configuration.
func (s Scaling) At(at Config) (latency, mops float64) {
	sum, l, m := 0.0, 0.0, 0.0
	for i := range s {
		o := &s[i]
		d := squaredDistance(o.Config, at)
		if d == 0 {
			return o.Latency, o.Mops
		}
		w := 1 / (d * d)
		sum += w
		l += w * math.Log(o.Latency)
		m += w * math.Log(o.Mops)
	}
	if sum == 0 {
		return 1, 1
	}
	return math.Exp(l / sum), math.Exp(m / sum)
}

// squaredDistance is that of two configurations in a scaling's coordinates.
func squaredDistance(a, b Config) float64 {
	a, b = a.alias(), b.alias()
	between := func(x, y int) float64 { return math.Log2(float64(x) / float64(y)) }
	side := func(c Config) float64 { // of s
		if c.S == 0 {
			return 0
		}
		const away = 4 // of batches from one-sided access
		return away + math.Log2(float64(c.S))
	}
	sum := 0.0
	for _, d := range []float64{between(a.C, b.C), between(a.B, b.B), between(a.Q, b.Q), side(a) - side(b)} {
		sum += d * d
	}
	return sum
}

// scaled returns a performance multiplied by factors.
func (p Performance) scaled(latency, mops float64) Performance {
	return Performance{LatencyUs: p.LatencyUs * latency, Mops: p.Mops * mops}
}

// Scaled returns the measurement with the figures of reads and writes corrected.
func (m *Measurement) Scaled(reads, writes Scaling) *Measurement {
	n := *m
	n.Points = slices.Clone(m.Points)
	for i := range n.Points {
		p := &n.Points[i]
		if p.Skipped {
			continue
		}
		p.Read = p.Read.scaled(reads.At(p.Config))
		p.Write = p.Write.scaled(writes.At(p.Config))
	}
	n.Opt = n.opt()
	return &n
}

// Sampled are the figures of one configuration that was measured to scale a model.
type Sampled struct {
	RecordSize  int
	At          Config
	Read, Write Performance
}

// Check returns an error for a sample that makes no sense.
func (s Sampled) Check() error {
	c := s.At
	if s.RecordSize < 1 || s.RecordSize > maxRecordSize || c.C < 1 || c.C > maxCores || c.S < 0 || c.S > c.C || c.B < 1 || c.B > BatchLimit(s.RecordSize) || c.Q < 1 || c.Q > maxQueueDepth {
		return fmt.Errorf("records of %d bytes, configuration %v: out of bounds", s.RecordSize, c)
	}
	return cmp.Or(s.Read.check(), s.Write.check())
}

// Calibrated returns the measurement with its figures corrected by the samples of its record size,
// or of the nearest one that has samples. Factors that are not trusted are left out.
func (m *Measurement) Calibrated(samples []Sampled) *Measurement {
	nearest := 0
	away := func(size int) float64 { return math.Abs(math.Log2(float64(size) / float64(m.RecordSize))) }
	for _, s := range samples {
		if nearest == 0 || away(s.RecordSize) < away(nearest) {
			nearest = s.RecordSize
		}
	}
	at := map[Config]*Point{}
	for i := range m.Points {
		if p := &m.Points[i]; !p.Skipped {
			at[p.Config] = p
		}
	}
	var reads, writes Scaling
	for _, s := range samples {
		if p := at[s.At.alias()]; p != nil && s.RecordSize == nearest {
			reads, writes = reads.withTrusted(Observe(s.At, p.Read, s.Read)), writes.withTrusted(Observe(s.At, p.Write, s.Write))
		}
	}
	return m.Scaled(reads, writes)
}

// Worse returns the measurement of the worse figures of two of the same configurations: what both
// machines give.
func (m *Measurement) Worse(o *Measurement) *Measurement {
	n := *m
	n.Points = slices.Clone(m.Points)
	for i := range n.Points {
		if p := &n.Points[i]; !p.Skipped && i < len(o.Points) && !o.Points[i].Skipped {
			p.Read, p.Write = p.Read.Worse(o.Points[i].Read), p.Write.Worse(o.Points[i].Write)
		}
	}
	n.Opt = n.opt()
	return &n
}

// Spread returns at most that many measured configurations with no more than that many client
// threads and server threads, far apart from one another: the first is the one with the least latency,
// and each next one is the farthest from those before.
func (m *Measurement) Spread(clients, servers, most int) (all []Config) {
	var left []Config
	for i := range m.Points {
		if p := &m.Points[i]; !p.Skipped && p.C <= clients && p.S <= servers {
			left = append(left, p.Config)
		}
	}
	apart := func(c Config) float64 {
		nearest := math.Inf(1)
		for _, o := range all {
			nearest = min(nearest, squaredDistance(o, c))
		}
		return nearest
	}
	for len(left) > 0 && len(all) < most {
		next := 0
		for i := range left[1:] {
			if len(all) > 0 && apart(left[i+1]) > apart(left[next]) {
				next = i + 1
			}
		}
		all = append(all, left[next])
		left = slices.Delete(left, next, next+1)
	}
	return all
}

// Nearest returns the complete measurements of some models that are the nearest to a place: of its
// transport and network, and of the distance that is the least away, one for each record size. Of
// several of the same thing the first counts. The distances do not matter where a network or one
// host includes all their effects.
func Nearest(at Place, models ...*Model) (all []*Measurement) {
	away := func(n *Measurement) int { return max(n.Distance-at.Distance, at.Distance-n.Distance) }
	for _, m := range models {
		if m.Provenance.Transport != at.Transport {
			continue
		}
		for _, n := range m.Measurements {
			if n.Network != at.Network || !n.Complete() {
				continue
			}
			i := slices.IndexFunc(all, func(o *Measurement) bool { return o.RecordSize == n.RecordSize })
			switch {
			case i < 0:
				all = append(all, n)
			case away(n) < away(all[i]):
				all[i] = n
			}
		}
	}
	return all
}
