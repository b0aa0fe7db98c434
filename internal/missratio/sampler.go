package missratio

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Kind says what an access does to the record of its key.
type Kind uint8

const (
	// Read reads the record.
	Read Kind = iota
	// Write stores a record without looking for the old one.
	Write
	// Update stores a record that depends on the old one.
	Update
	// Move copies the record to the tail, for compaction. It is not counted as an access.
	Move
)

// Access is an access to a key.
type Access struct {
	Kind Kind
	Hash uint64 // of the key, evenly distributed
	Size int    // of the record in the log in bytes; 0: not known
	// Distance is that of the key's record from the tail of the real log, before the access; -1: the key
	// has no record.
	Distance int64
	Tail     int64 // of the real log, as an address
}

// Options describe the log, and bound the sampler.
type Options struct {
	Memory          int64 // of the log, in bytes: the middle of the simulated sizes
	PageSize        int64
	MutableFraction float64 // default 0.9
	RecordSize      int     // in bytes, where accesses do not say it; default 128

	// MaxRate is the largest share of the keys that are followed. Default 1/512.
	MaxRate float64
	// MaxKeys is the largest number of keys that are followed, at most DefaultKeys, which is the default.
	MaxKeys int
	// WitnessEvery is the number of accesses of which one is a witness. Default 1024.
	WitnessEvery int
}

const (
	// DefaultRate and DefaultKeys are the defaults of MaxRate and MaxKeys.
	DefaultRate = 1.0 / 512
	DefaultKeys = 4096
	// DefaultWitnessEvery is the default of WitnessEvery.
	DefaultWitnessEvery = 1024

	// The simulated logs have 1<<-below to 1<<above times the real log's memory.
	below, above = 4, 4
	perDoubling  = 2
	sizes        = (below+above)*perDoubling + 1

	// window is the number of followed accesses after which earlier ones count half.
	window = 1 << 16
)

// Sampler follows some keys and simulates what becomes of their records. Its methods are safe for
// concurrent use.
type Sampler struct {
	mu      sync.Mutex // guards all fields
	options Options
	limit   uint64 // keys with a lower hash are followed
	rate    float64
	random  random

	logs  [sizes]logSim
	slots map[uint64]uint16 // by hash
	keys  []key
	// addresses and presences have the places of each slot together: of its record in each log, and in
	// each cache of each log.
	addresses []int64
	presences []presence

	hot    hotKeys
	sealed int64 // the real log's tail at its last commit

	seen     float64 // weight of the counted accesses to followed keys that are not hot
	absent   float64 // part of seen: reads of keys without a record
	recent   int     // followed accesses since the last decay
	followed uint64  // accesses, never decayed
}

// key is a followed key.
type key struct {
	hash uint64
	size int
}

// New returns a sampler that follows the keys whose hash is below its Limit.
func New(o Options) *Sampler {
	o.MutableFraction = cmp.Or(o.MutableFraction, 0.9)
	o.RecordSize = cmp.Or(o.RecordSize, 128)
	o.MaxRate = min(cmp.Or(o.MaxRate, DefaultRate), 1)
	o.MaxKeys = min(cmp.Or(o.MaxKeys, DefaultKeys), DefaultKeys)
	o.WitnessEvery = cmp.Or(o.WitnessEvery, DefaultWitnessEvery)
	s := &Sampler{options: o, slots: make(map[uint64]uint16, o.MaxKeys), hot: newHotKeys()}
	s.keys = make([]key, 0, o.MaxKeys)
	s.addresses = make([]int64, 0, o.MaxKeys*sizes)
	s.presences = make([]presence, 0, o.MaxKeys*sizes*len(cacheRatios))
	s.setLimit(limitOf(o.MaxRate))
	for i := range s.logs {
		l := &s.logs[i]
		l.memory = int64(float64(o.Memory) * math.Exp2(float64(i)/perDoubling-below))
		l.frames, l.tail = pagesOf(l.memory, o.PageSize, o.MutableFraction), tailStart
		for j := range l.caches {
			l.caches[j].capacity = float64(l.memory) * cacheRatios[j]
		}
	}
	return s
}

// limitOf returns the hash below which that share of all hashes lies.
func limitOf(rate float64) uint64 {
	if rate >= 1 {
		return math.MaxUint64
	}
	return uint64(rate * (1 << 64))
}

func (s *Sampler) setLimit(limit uint64) {
	s.limit, s.rate = limit, float64(limit)/(1<<64)
}

// Limit returns the hash below which accesses are to be passed to Add. It never rises.
func (s *Sampler) Limit() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// Add takes an access. It ignores one whose hash is not below Limit. It returns the new Limit.
func (s *Sampler) Add(a Access) (limit uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Hash >= s.limit {
		return s.limit
	}
	weight, counted := 1/s.rate, 0.0
	if s.hot.is(a.Hash) {
		weight = 1 // it stands for itself only, and the hot keys' part of the model counts it
	} else if a.Kind != Move {
		counted = weight
	}
	s.followed++
	s.seen += counted
	slot, ok := s.slots[a.Hash]
	switch {
	case ok:
		s.access(a, slot, weight, counted)
	case a.Distance >= 0 || a.Kind == Write || a.Kind == Update:
		s.access(a, s.follow(a), weight, counted)
	case a.Kind == Read:
		s.absent += counted
	}
	if s.recent++; s.recent == window {
		s.decay()
	}
	return s.limit
}

// Commit tells that the real log was made read-only up to its tail.
func (s *Sampler) Commit(tail int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = tail
	for i := range s.logs {
		l := &s.logs[i]
		l.sealed = l.tail
		l.commits++
	}
}

// Forget drops what was counted. The simulated logs and caches stay as they are, and keys that are
// hot stay so.
func (s *Sampler) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent, s.seen, s.absent = 0, 0, 0
	s.hot.reads, s.hot.updates, s.hot.counted, s.hot.all = [sizes]tally{}, [sizes]tally{}, 0, 0
	for i := range s.logs {
		l := &s.logs[i]
		l.written, l.commits, l.reads, l.updates = 0, 0, tally{}, tally{}
		for j := range l.caches {
			l.caches[j].hits = tally{}
		}
	}
}

// Stats are numbers of a sampler: the accesses that it took, the keys that it follows, and the share of all
// keys that are followed.
type Stats struct {
	Accesses uint64
	Keys     int64
	Rate     float64
}

// Stats returns the numbers.
func (s *Sampler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.followed, int64(len(s.keys)), s.rate}
}

// SetSize sets the size of the record of a key, in bytes, if the key is followed.
func (s *Sampler) SetSize(hash uint64, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot, ok := s.slots[hash]; ok {
		s.keys[slot].size = size
	}
}

// none are the presences of a key that was not read yet.
var none [sizes * len(cacheRatios)]presence

// follow begins to follow a key and returns its slot.
func (s *Sampler) follow(a Access) uint16 {
	if len(s.keys) == s.options.MaxKeys {
		s.lower()
	}
	slot := uint16(len(s.keys))
	s.slots[a.Hash] = slot
	s.keys = append(s.keys, key{a.Hash, cmp.Or(a.Size, s.options.RecordSize)})
	for i := range s.logs {
		at := int64(0) // below every read-only address
		if a.Distance >= 0 {
			at = s.logs[i].tail - a.Distance
		}
		s.addresses = append(s.addresses, at)
	}
	s.presences = append(s.presences, none[:]...)
	return slot
}

// access simulates an access in all logs.
func (s *Sampler) access(a Access, slot uint16, weight, counted float64) {
	k := &s.keys[slot]
	grown := a.Size > k.size
	k.size = cmp.Or(a.Size, k.size)
	first := int(slot) * sizes
	addresses := s.addresses[first : first+sizes]
	for i := range s.logs {
		l := &s.logs[i]
		bucket := bucketOf(l.tail - addresses[i])
		switch a.Kind {
		case Read:
			l.reads[bucket] += counted
			if addresses[i] < l.frames.head(l.tail) {
				s.readCold(i, cacheAccess{slot, k.size, bucket, counted, s.rate})
			}
			continue
		case Update:
			l.updates[bucket] += counted
		}
		if a.Kind != Move && !grown && l.inPlace(addresses[i]) {
			continue
		}
		if counted > 0 {
			l.written += float64(k.size) * weight
		}
		addresses[i] = l.append(k.size, weight)
		clear(s.presencesOf(slot, i))
	}
}

// readCold simulates the read of a record that is not in the memory of log i.
func (s *Sampler) readCold(i int, a cacheAccess) {
	at := s.presencesOf(a.slot, i)
	for j := range s.logs[i].caches {
		s.logs[i].caches[j].read(a, &at[j], func(slot uint16) *presence { return &s.presencesOf(slot, i)[j] }, &s.random)
	}
}

// presencesOf returns what the caches of log i know of a key.
func (s *Sampler) presencesOf(slot uint16, i int) []presence {
	const n = len(cacheRatios)
	first := (int(slot)*sizes + i) * n
	return s.presences[first : first+n : first+n]
}

// decay makes what was counted count half.
func (s *Sampler) decay() {
	s.recent = 0
	s.seen /= 2
	s.absent /= 2
	s.hot.decay()
	for i := range s.logs {
		l := &s.logs[i]
		l.written /= 2
		l.commits /= 2
		l.reads.decay()
		l.updates.decay()
		for j := range l.caches {
			l.caches[j].hits.decay()
		}
	}
}

// lower lowers the limit so that an eighth of the keys is no longer followed.
func (s *Sampler) lower() {
	hashes := make([]uint64, len(s.keys))
	for i := range s.keys {
		hashes[i] = s.keys[i].hash
	}
	slices.Sort(hashes)
	s.setLimit(hashes[len(hashes)-max(len(hashes)/8, 1)])
	moved := make([]int, len(s.keys)) // new slot of each key, or -1
	kept := 0
	for old, k := range s.keys {
		if moved[old] = -1; k.hash >= s.limit {
			delete(s.slots, k.hash)
			continue
		}
		moved[old] = kept
		s.slots[k.hash], s.keys[kept] = uint16(kept), k
		copy(s.addresses[kept*sizes:(kept+1)*sizes], s.addresses[old*sizes:])
		const n = sizes * len(cacheRatios)
		copy(s.presences[kept*n:(kept+1)*n], s.presences[old*n:])
		kept++
	}
	s.keys, s.addresses = s.keys[:kept], s.addresses[:kept*sizes]
	s.presences = s.presences[:kept*sizes*len(cacheRatios)]
	for i := range s.logs {
		for j := range s.logs[i].caches {
			s.logs[i].caches[j].keep(moved, func(slot uint16) *presence { return &s.presencesOf(slot, i)[j] })
		}
	}
}

// keep renumbers the slots of the queue, and drops the records of keys that are no longer followed.
func (c *cacheSim) keep(moved []int, all func(slot uint16) *presence) {
	queue, first, base := c.queue, c.first, c.base
	c.queue, c.first, c.base, c.used = nil, 0, base+uint32(len(queue)), 0
	for i := first; i < len(queue); i++ {
		q := queue[i]
		to := moved[q.slot]
		if to < 0 {
			continue
		}
		q.slot = uint16(to)
		at := all(q.slot)
		// New numbers are above all old ones.
		if at.state() >= cached && at.number() == (base+uint32(i))&numberMask {
			*at = at.state() | presence(c.push(q)&numberMask)
		} else {
			c.push(q) // stale
		}
		c.used += float64(q.words) * 8
	}
}
