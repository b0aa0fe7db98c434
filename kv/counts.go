package kv

import (
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// fromCache is the tier number that stands for the read cache.
const fromCache = -1

// counts are the numbers of one session. Those of operations change only inside an epoch: see
// [Session.begun].
type counts struct {
	ops         [opKinds]counter
	refused     uint64 // used by the session only
	readsCache  counter
	readsTier   [MaxTiers]counter
	deviceReads counter
	cacheHits   counter
}

// counter is a number that only its session changes, by a plain load and a store. An atomic
// add would cost as much as the rest of an operation in memory.
type counter uint64

func (c *counter) inc() { c.add(1) }

func (c *counter) add(n int64) { mem.StoreRelease((*uint64)(c), uint64(*c)+uint64(n)) }

func (c *counter) load() uint64 { return atomic.LoadUint64((*uint64)(c)) }

// loadSigned is load for a counter that may be below zero.
func (c *counter) loadSigned() int64 { return int64(c.load()) }

// addTo adds the numbers to m.
func (c *counts) addTo(m *Metrics) {
	m.Operations.Reads += c.ops[OpRead].load()
	m.Operations.Upserts += c.ops[OpUpsert].load()
	m.Operations.RMWs += c.ops[OpRMW].load()
	m.Operations.Deletes += c.ops[OpDelete].load()
	m.Operations.Inserts += c.ops[OpInsert].load()
	m.ReadsFrom.Cache += c.readsCache.load()
	for i := range c.readsTier {
		m.ReadsFrom.Tier[i] += c.readsTier[i].load()
	}
	m.Device.Reads += c.deviceReads.load()
	m.ReadCache.Hits += c.cacheHits.load()
	// A session may count between these loads, so the tiers may add up to more than Reads.
	m.ReadsFrom.Memory = m.Operations.Reads - min(m.Operations.Reads, m.ReadsFrom.Cache)
	for _, n := range m.ReadsFrom.Tier {
		m.ReadsFrom.Memory -= min(m.ReadsFrom.Memory, n)
	}
}

// With Options.CountKeys a session counts a change of a key when it takes effect, inside its
// epoch. So in a barrier the number of keys agrees with the log, and a commit stores it.

// KeyCount returns the number of keys, and the number of those that expire, without a scan. It
// is exact except for keys that have expired within the last second. After the store was
// opened again, a key may be counted after it has expired, for up to a thirty-second of the
// time that it had left at the last commit. ok is false without Options.CountKeys.
func (st *Store) KeyCount() (all, expiring int64, ok bool) {
	if st.keyCounter == nil {
		return 0, 0, false
	}
	gone, timed := st.keyCounter.Expired(st.now())
	return st.keysCounted() - gone, timed, true
}

// keysCounted returns the sum of the sessions' counts.
func (st *Store) keysCounted() int64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.keysCountedLocked()
}

// keysCountedLocked is keysCounted for callers that hold mu.
func (st *Store) keysCountedLocked() int64 {
	n := st.keysPast
	for s := range st.sessions {
		n += s.keys.loadSigned()
	}
	return n
}

// takeCount fills in the count of a state, in its barrier.
func (st *Store) takeCount(s *manifest.State) {
	if st.keyCounter != nil {
		s.Count = st.keyCounter.State(st.keysCounted(), st.now())
	}
}

// beginKeyCounter continues from the count of the recovered state. If the state has none,
// since the store did not count, it counts the keys by a scan.
func (st *Store) beginKeyCounter(s *manifest.State) error {
	if st.keyCounter == nil {
		return nil
	}
	if s.Count != nil || s.Tail == s.Begin {
		if s.Count != nil {
			st.keysPast = s.Count.Keys
			st.keyCounter.Restore(s.Count)
		}
		return nil
	}
	began := time.Now()
	// The clock is stopped, so that the scan finds the keys of one moment. The store is not in
	// use yet.
	clock, now := st.now, st.now()
	st.now = func() int64 { return now }
	defer func() { st.now = clock }()
	st.keyCounter.Since = now
	for r, err := range st.Scan() {
		if err != nil {
			return err
		}
		st.keysPast++
		if r.Expires != 0 {
			st.keyCounter.Add(r.Expires, 1)
		}
	}
	st.opts.Logger.Info("the store's keys were counted", "keys", st.keysPast, "took", time.Since(began))
	return nil
}

// recount counts a change of a key that takes effect. there is set if the key had a record; was
// is that record's expiry, which may have passed. verdict and expires describe its new record.
func (s *Session) recount(there bool, was int64, verdict Verdict, expires int64) {
	if !s.counting {
		return
	}
	if was != 0 && was <= s.store.keyCounter.Since {
		there, was = false, 0
	}
	switch is := verdict == Put; {
	case is && !there:
		s.keys.add(1)
	case there && !is:
		s.keys.add(-1)
	}
	if verdict != Put {
		expires = 0
	}
	if was == expires {
		return
	}
	if was != 0 {
		s.store.keyCounter.Add(was, -1)
	}
	if expires != 0 {
		s.store.keyCounter.Add(expires, 1)
	}
}
