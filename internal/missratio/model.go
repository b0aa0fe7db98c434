package missratio

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/hlog"
)

// Model is what a sampler knows: where reads find their records in logs of several sizes, with
// several read caches each. All weights are shares of all accesses. Its JSON form is that of /mrc.
type Model struct {
	// Accesses were passed to the sampler, of Keys followed keys: Rate of all keys.
	Accesses uint64  `json:"accesses"`
	Keys     int     `json:"keys"`
	Rate     float64 `json:"rate"`
	Hot      float64 `json:"hot"` // share of accesses of the keys that were counted one by one

	Reads      float64 `json:"reads"`       // share of reads
	Updates    float64 `json:"updates"`     // share of updates that need the old record
	Absent     float64 `json:"absent"`      // part of Reads: of keys without a record
	RecordSize float64 `json:"record_size"` // mean of the followed keys, in bytes

	PageSize        int64   `json:"page_size"`
	MutableFraction float64 `json:"mutable_fraction"`
	Sizes           []Size  `json:"sizes"` // by ascending Memory
}

// Size is a simulated log.
type Size struct {
	Memory  int64     `json:"memory_bytes"`
	Growth  float64   `json:"growth"`  // bytes appended for each access
	Reads   Histogram `json:"reads"`   // by distance, including those in memory
	Updates Histogram `json:"updates"` // by distance, including those in memory
	Caches  []Cache   `json:"caches"`  // by ascending Bytes
}

// Cache is a simulated read cache of a log.
type Cache struct {
	Bytes int64     `json:"bytes"`
	Hits  Histogram `json:"hits"`
}

// maxMemory bounds the memory of a simulated log, so that computing with multiples of it cannot overflow.
const maxMemory = 1 << 56

// Check returns an error if the model, which may be from another process, is none that can predict.
func (m *Model) Check() error {
	switch {
	case m.PageSize < hlog.MinPageSize || m.PageSize > hlog.MaxPageSize:
		return fmt.Errorf("missratio: pages of %d bytes: want %d to %d", m.PageSize, hlog.MinPageSize, hlog.MaxPageSize)
	case !(m.MutableFraction > 0 && m.MutableFraction <= 1):
		return fmt.Errorf("missratio: mutable fraction %g: want more than 0, at most 1", m.MutableFraction)
	case len(m.Sizes) == 0:
		return errors.New("missratio: the model has no sizes")
	}
	least := int64(0)
	for _, size := range m.Sizes {
		if size.Memory <= least || size.Memory > maxMemory {
			return fmt.Errorf("missratio: simulated memory of %d bytes after %d: want ascending sizes up to %d", size.Memory, least, int64(maxMemory))
		}
		least = size.Memory
	}
	return nil
}

// counts are a sampler's counts at one moment.
type counts struct {
	logs               [sizes]logSim
	hotReads           [sizes]tally
	hotUpdates         [sizes]tally
	seen, absent       float64
	witnesses, counted float64
}

// Model returns what the sampler knows. It is nil if it has seen nothing.
func (s *Sampler) Model() *Model {
	m := &Model{PageSize: s.options.PageSize, MutableFraction: s.options.MutableFraction}
	c := s.take(m)
	if c.seen == 0 && c.witnesses == 0 {
		return nil
	}
	// The shares of all accesses that a unit of weight is, and a witness of a hot key.
	rest, hot := 0.0, 0.0
	if c.counted > 0 {
		m.Hot = c.counted / c.witnesses
		hot = 1 / c.witnesses
	}
	if c.seen > 0 {
		rest = (1 - m.Hot) / c.seen
	}
	m.Absent = c.absent * rest
	for i := range c.logs {
		m.Sizes = append(m.Sizes, c.model(i, rest, hot))
	}
	m.Reads = m.Sizes[0].Reads.Sum() + m.Absent
	m.Updates = m.Sizes[0].Updates.Sum()
	return m
}

// take returns the counts, and sets the fields of m that need no computation. Sessions wait for it.
func (s *Sampler) take(m *Model) *counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Accesses, m.Keys, m.Rate = s.followed, len(s.keys), s.rate
	m.RecordSize = float64(s.options.RecordSize)
	for _, k := range s.keys {
		m.RecordSize += (float64(k.size) - float64(s.options.RecordSize)) / float64(len(s.keys))
	}
	c := &counts{
		logs: s.logs, hotReads: s.hot.reads, hotUpdates: s.hot.updates,
		seen: s.seen, absent: s.absent, witnesses: s.hot.all, counted: s.hot.counted,
	}
	return c
}

// model returns log i's part of a model.
func (c *counts) model(i int, rest, hot float64) Size {
	l := &c.logs[i]
	size := Size{Memory: l.memory, Growth: l.written * rest}
	memory := l.frames.meanMemory()
	var cold tally // reads of hot keys that every read cache answers
	again := c.again(i)
	for b := range cold {
		if startOf(b) > memory {
			cold[b] = c.hotReads[i][b] * hot * again
		}
		l.reads[b] = l.reads[b]*rest + c.hotReads[i][b]*hot
		l.updates[b] = l.updates[b]*rest + c.hotUpdates[i][b]*hot
	}
	size.Reads, size.Updates = l.reads.histogram(), l.updates.histogram()
	for j := range l.caches {
		hits := &l.caches[j].hits
		for b := range hits {
			hits[b] = hits[b]*rest + cold[b]
		}
		size.Caches = append(size.Caches, Cache{int64(l.caches[j].capacity), hits.histogram()})
	}
	return size
}

// again returns the share of the reads of hot keys, outside of log i's memory, that are at least the third
// since the last write. A hot key that is not in memory stays in every read cache, which admits it at its second
// fetch, until it is written: so a read follows two others with the square of the share of reads.
func (c *counts) again(i int) float64 {
	if c.counted == 0 {
		return 0
	}
	reads := 0.0
	for _, weight := range c.hotReads[i] {
		reads += weight
	}
	share := reads / c.counted
	return share * share
}
