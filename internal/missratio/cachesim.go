package missratio

import "math"

// cacheRatios are the sizes of simulated read caches, as multiples of the log's memory.
var cacheRatios = [...]float64{0.25, 0.5, 1, 2, 4}

// cacheSim is a read cache of the followed keys' records, with the rules of package readcache: a
// queue whose oldest record is evicted, or queued again if it was read; and ghosts, without which a
// record is not admitted to a cache that is full.
type cacheSim struct {
	capacity float64 // bytes of the whole cache
	used     float64 // bytes of followed records in the queue, stale ones included
	full     bool    // it has evicted
	declined uint32  // records that were not admitted
	hits     tally   // reads found here, by the distance of their record in the log

	// queue[first:] are the records in order. The sequence number of queue[i] is base + i.
	queue []queued
	first int
	base  uint32
}

// queued is a record in a cache's queue: a followed key, and the record's space in units of 8 bytes.
type queued struct {
	slot  uint16
	words uint16
}

// presence is what a cache knows of a followed key: two bits of state, and a number.
//
//	absent      0
//	ghost       the number of declined records at which the ghost is forgotten
//	cached      the sequence number of its record in the queue
//	referenced  the same, and the record was read since it was queued
type presence uint32

const (
	ghost      presence = 1 << 30
	cached     presence = 2 << 30
	referenced presence = 3 << 30
	numberMask          = 1<<30 - 1
)

func (p presence) state() presence { return p &^ numberMask }
func (p presence) number() uint32  { return uint32(p & numberMask) }

const (
	// secondChances, noteBytes, indexBytes and perBucket are those of package readcache: the queued-again
	// records for each insertion, the space of a record beside itself, and the entries of a bucket.
	secondChances = 16
	noteBytes     = 8
	perBucket     = 4.7
	indexBytes    = 64 / perBucket
	// maxQueued bounds a queue. A cache with room for more has that for stale records only.
	maxQueued = DefaultKeys + DefaultKeys/2
	// ghostLives is the number of later ghosts of its bucket that replace a ghost.
	ghostLives = 4
)

// spaceOf returns the space that a record takes in the cache, in units of 8 bytes.
func spaceOf(size int) uint16 {
	return uint16(min((float64(noteBytes+(size+7)&^7)+indexBytes)/8+0.5, math.MaxUint16))
}

// cacheAccess is a read of a record that is not in the log's memory.
type cacheAccess struct {
	slot   uint16
	size   int
	bucket int     // of its distance
	weight float64 // 0 if it is not counted
	rate   float64 // share of all keys that are followed
}

// read looks for the record in the cache, and offers it to the cache if it is not there. at is the
// cache's knowledge of the key, and all returns that of another key.
func (c *cacheSim) read(a cacheAccess, at *presence, all func(slot uint16) *presence, random *random) {
	if at.state() >= cached {
		*at |= referenced
		c.hits[a.bucket] += a.weight
		return
	}
	words := spaceOf(a.size)
	if c.full && (at.state() != ghost || int32((at.number()-c.declined)<<2) < 0) {
		c.declined++
		mean := c.capacity / (float64(words) * 8) / perBucket * a.rate // buckets for each followed key
		life := uint32(min(mean*random.gamma(), 1<<28))
		*at = ghost | presence((c.declined+life)&numberMask)
		return
	}
	*at = cached | presence(c.push(queued{a.slot, words})&numberMask)
	c.used += float64(words) * 8
	c.evict(c.capacity*a.rate, all)
}

// push adds a record to the queue and returns its sequence number.
func (c *cacheSim) push(q queued) uint32 {
	if c.first > 64 && c.first > len(c.queue)/2 {
		c.queue = c.queue[:copy(c.queue, c.queue[c.first:])]
		c.base += uint32(c.first)
		c.first = 0
	}
	c.queue = append(c.queue, q)
	return c.base + uint32(len(c.queue)-1)
}

// evict removes records until the rest takes at most limit bytes.
func (c *cacheSim) evict(limit float64, all func(slot uint16) *presence) {
	for left := secondChances; c.first < len(c.queue) && (c.used > limit || len(c.queue)-c.first > maxQueued); {
		q, number := c.queue[c.first], (c.base+uint32(c.first))&numberMask
		c.first++
		at := all(q.slot)
		current := at.state() >= cached && at.number() == number
		if current && at.state() == referenced && left > 0 {
			left--
			*at = cached | presence(c.push(q)&numberMask)
			continue
		}
		if current {
			*at = 0
		}
		c.used -= float64(q.words) * 8
		c.full = true
	}
}

// random is a small generator of random numbers: the same numbers for each sampler.
type random uint64

// float returns a number above 0 and at most 1.
func (r *random) float() float64 {
	*r = *r*6364136223846793005 + 1442695040888963407
	return (float64(*r>>11) + 1) / (1 << 53)
}

// gamma returns the time until the fourth of random events of which one is expected in each unit of time.
func (r *random) gamma() float64 {
	product := 1.0
	for range ghostLives {
		product *= r.float()
	}
	return -math.Log(product)
}
