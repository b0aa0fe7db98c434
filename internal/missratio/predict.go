package missratio

import (
	"math"

	"github.com/redykv/redykv/hlog"
)

// Setting is the sizes for which a Model predicts, in bytes.
type Setting struct {
	Memory int64 // of the log
	Cache  int64 // of the read cache; 0: none
	Tier   int64 // of the first tier of the device, which holds the newest part of the log; 0: none
	// PageSize is the log's. Default: that of the model's log.
	PageSize int64
}

// Shares says where accesses find their records, as shares of all accesses. Memory, Cache, Tier and
// Beyond are of reads, and add up to the share of reads. UpdatesTier and UpdatesBeyond are of updates
// whose old record is not in memory.
type Shares struct {
	Memory, Cache, Tier, Beyond float64
	UpdatesTier, UpdatesBeyond  float64
}

// Reads returns the share of reads.
func (s Shares) Reads() float64 { return s.Memory + s.Cache + s.Tier + s.Beyond }

// Hit returns the share of the reads that find their record in memory, and in memory or the read cache.
func (s Shares) Hit() (memory, cache float64) {
	reads := s.Reads()
	if reads == 0 {
		return 0, 0
	}
	return s.Memory / reads, (s.Memory + s.Cache) / reads
}

// Predict returns where accesses find their records. Between two simulated sizes it interpolates:
// see place. Beyond the largest and the smallest size these answer alone.
func (m *Model) Predict(at Setting) Shares {
	if at.PageSize == 0 {
		at.PageSize = m.PageSize
	}
	p := m.place(max(at.Memory, hlog.MinFrames*hlog.MinPageSize), at.PageSize)
	reads := p.where(at, func(s *Size) Histogram { return s.Reads })
	updates := p.where(at, func(s *Size) Histogram { return s.Updates })
	cold := reads.near + reads.far
	cached := 0.0
	if cold > 0 {
		cached = min(p.mix(p.low.cached(float64(at.Cache)), p.high.cached(float64(at.Cache)))/cold, 1)
	}
	return Shares{
		Memory: reads.warm + m.Absent, Cache: cold * cached, Tier: reads.near * (1 - cached), Beyond: reads.far * (1 - cached),
		UpdatesTier: updates.near, UpdatesBeyond: updates.far,
	}
}

// place is a size of the log's memory between two simulated ones. The sizes are those of the mean
// memory in bytes: see pages.
type place struct {
	low, high             *Size
	memory                float64
	lowMemory, highMemory float64
	part                  float64 // place between both, from 0 for low to 1 for high
}

// place returns the place of a log with that memory.
func (m *Model) place(memory, pageSize int64) place {
	upper := 0
	for upper < len(m.Sizes)-1 && m.Sizes[upper].Memory < memory {
		upper++
	}
	lower := max(upper-1, 0)
	mean := func(memory, pageSize int64) float64 {
		frames := pagesOf(memory, pageSize, m.MutableFraction)
		return frames.meanMemory()
	}
	p := place{
		low: &m.Sizes[lower], high: &m.Sizes[upper], memory: mean(memory, pageSize),
		lowMemory: mean(m.Sizes[lower].Memory, m.PageSize), highMemory: mean(m.Sizes[upper].Memory, m.PageSize),
	}
	if lower < upper {
		p.part = between(p.memory, p.lowMemory, p.highMemory)
	}
	return p
}

// between returns the place of x between low and high on a logarithmic scale, 0 to 1.
func between(x, low, high float64) float64 {
	if high <= low {
		return 1
	}
	return min(max(math.Log(x/low)/math.Log(high/low), 0), 1)
}

// mix interpolates between two values.
func (p *place) mix(low, high float64) float64 { return low*(1-p.part) + high*p.part }

// found is where accesses find their records, without a read cache.
type found struct{ warm, near, far float64 }

// where returns where the accesses of a histogram find their records. What is in memory lies
// between what is at the two simulated sizes. The smaller log says how it grows in between: the records that
// it reads just beyond its memory would be there. The larger log does not know that. Records that are
// written often are at any distance within its memory, and would also be in a smaller one.
func (p *place) where(at Setting, histogram func(*Size) Histogram) found {
	low, high := histogram(p.low), histogram(p.high)
	if p.low == p.high { // outside of what was simulated
		return split(low, p.memory, float64(at.Tier))
	}
	a, b := split(low, p.lowMemory, float64(at.Tier)), split(high, p.highMemory, float64(at.Tier))
	part := p.part
	if all := low.Below(p.highMemory) - a.warm; all > 1e-6 {
		part = min(max((low.Below(p.memory)-a.warm)/all, 0), 1)
	}
	warm := a.warm*(1-part) + b.warm*part
	rest := p.mix(low.Sum(), high.Sum()) - warm
	near := 0.0
	if float64(at.Tier) > p.memory {
		near = rest * min(max(p.mix(a.nearly(), b.nearly()), 0), 1)
	}
	return found{warm, near, rest - near}
}

// split returns where accesses find their records with memory bytes, and a tier of that many.
func split(h Histogram, memory, tier float64) found {
	warm, near := h.Below(memory), h.Below(max(tier, memory))
	return found{warm, near - warm, max(h.Sum()-near, 0)}
}

// nearly returns the share of what is not in memory that is in the tier.
func (f *found) nearly() float64 {
	if f.near+f.far < 1e-9 {
		return 1
	}
	return f.near / (f.near + f.far)
}

// cached returns the weight of the reads that a read cache answers.
func (s *Size) cached(bytes float64) float64 {
	last := Cache{Bytes: 0}
	for _, c := range s.Caches {
		if bytes <= float64(c.Bytes) {
			part := (bytes - float64(last.Bytes)) / float64(c.Bytes-last.Bytes)
			return last.Hits.Sum()*(1-part) + c.Hits.Sum()*part
		}
		last = c
	}
	return last.Hits.Sum()
}

// Growth returns the bytes that an access appends to a log with that memory.
func (m *Model) Growth(memory int64) float64 {
	upper := 0
	for upper < len(m.Sizes)-1 && m.Sizes[upper].Memory < memory {
		upper++
	}
	if upper == 0 {
		return m.Sizes[0].Growth
	}
	a, b := &m.Sizes[upper-1], &m.Sizes[upper]
	part := between(float64(memory), float64(a.Memory), float64(b.Memory))
	return a.Growth*(1-part) + b.Growth*part
}

// Curve returns sizes of the log's memory at which to draw a curve: four for each doubling.
func (m *Model) Curve() []int64 {
	var sizes []int64
	for i, size := range m.Sizes {
		for part := range 4 {
			if i < len(m.Sizes)-1 || part == 0 {
				sizes = append(sizes, int64(float64(size.Memory)*math.Exp2(float64(part)/4)))
			}
		}
	}
	return sizes
}
