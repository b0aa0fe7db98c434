package kv

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/keycount"
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
// epoch. So in a barrier the number of keys agrees with the log, and a commit stores it. A session
// has a number for each class of keys, and the store's number of a class is their sum.

// classCounts are numbers of keys by class.
type classCounts [keycount.Classes]int64

// KeyCount returns the number of keys, and the number of those that expire, without a scan. It
// is exact except for keys that have expired within the last second. After the store was
// opened again, a key may be counted after it has expired, for up to a thirty-second of the
// time that it had left at the last commit. ok is false without Options.CountKeys.
func (st *Store) KeyCount() (all, expiring int64, ok bool) {
	if st.keyCounters == nil {
		return 0, 0, false
	}
	for _, counter := range st.keyCounters.All() {
		gone, timed := counter.Expired(st.now())
		all, expiring = all-gone, expiring+timed
	}
	for _, n := range st.keysCounted(st.keyCounters.Classes()...) {
		all += n
	}
	return all, expiring, true
}

// KeyCountOf is KeyCount for the keys of one class. ok is false without Options.KeyClass.
func (st *Store) KeyCountOf(class uint8) (all, expiring int64, ok bool) {
	if st.opts.KeyClass == nil {
		return 0, 0, false
	}
	if counter := st.keyCounters.Get(class); counter != nil {
		gone, timed := counter.Expired(st.now())
		all, expiring = st.keysCounted(class)[class]-gone, timed
	}
	return all, expiring, true
}

// ExpiredKeys returns the number of keys that have expired since the store was opened, as exactly as
// KeyCount. ok is false without Options.CountKeys.
func (st *Store) ExpiredKeys() (n int64, ok bool) {
	if st.keyCounters == nil {
		return 0, false
	}
	for _, counter := range st.keyCounters.All() {
		n += counter.Ended(st.now())
	}
	return n, true
}

// keysCounted returns the sums of the sessions' counts of some classes.
func (st *Store) keysCounted(classes ...uint8) classCounts {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.keysCountedLocked(classes)
}

// keysCountedLocked is keysCounted for callers that hold mu. It goes through the sessions once, since
// barriers wait for it.
func (st *Store) keysCountedLocked(classes []uint8) (n classCounts) {
	for _, class := range classes {
		n[class] = st.keysPast[class]
	}
	for s := range st.sessions {
		for _, class := range classes {
			n[class] += s.keys[class].loadSigned()
		}
	}
	return n
}

// forgetKeys counts no keys any more. The caller is in a barrier.
func (st *Store) forgetKeys() {
	if st.keyCounters == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	counted := st.keysCountedLocked(st.keyCounters.Classes())
	for class, counter := range st.keyCounters.All() {
		st.keysPast[class] -= counted[class]
		counter.Clear()
	}
}

// classOf returns the class of a key.
func (st *Store) classOf(key []byte) uint8 {
	if st.opts.KeyClass == nil {
		return 0
	}
	return st.opts.KeyClass(key)
}

// takeCount fills in the count of a state, in its barrier.
func (st *Store) takeCount(s *manifest.State) {
	if st.keyCounters == nil {
		return
	}
	s.Count = &manifest.KeyCount{Since: st.keyCounters.Since, Classified: st.opts.KeyClass != nil}
	counted := st.keysCounted(st.keyCounters.Classes()...)
	for class, counter := range st.keyCounters.All() {
		switch k := counter.State(counted[class], st.now()); {
		case class == 0:
			s.Count.ClassCount = k
		case k.Keys != 0:
			if s.Count.Others == nil {
				s.Count.Others = make(map[uint8]manifest.ClassCount)
			}
			s.Count.Others[class] = k
		}
	}
}

// beginKeyCounters continues from the count of the recovered state. It counts the keys by a scan
// if the state has no count, since the store did not count, or none by class that is wanted, or a
// negative one.
func (st *Store) beginKeyCounters(ctx context.Context, s *manifest.State) error {
	switch classified := st.opts.KeyClass != nil; {
	case st.keyCounters == nil, s.Tail == s.Begin:
		return nil
	case s.Count != nil && s.Count.Negative():
		st.opts.Logger.Warn("the store's count of its keys is wrong; they are counted again")
	case s.Count != nil && (s.Count.Classified || !classified):
		st.keyCounters.Since = s.Count.Since
		st.continueCount(0, s.Count.ClassCount)
		for class, k := range s.Count.Others {
			if !classified {
				class = 0
			}
			st.continueCount(class, k)
		}
		return nil
	}
	return st.countByScan(ctx)
}

// continueCount adds the keys that an earlier process counted.
func (st *Store) continueCount(class uint8, k manifest.ClassCount) {
	st.keysPast[class] += k.Keys
	st.keyCounters.Of(class).Restore(k)
}

// countByScan counts the keys of a store that is not in use yet.
func (st *Store) countByScan(ctx context.Context) error {
	began := time.Now()
	// The clock is stopped, so that the scan finds the keys of one moment.
	clock, now := st.now, st.now()
	st.now = func() int64 { return now }
	defer func() { st.now = clock }()
	st.keyCounters.Since = now
	keys := 0
	for r, err := range st.ScanContext(ctx) {
		if err != nil {
			return err
		}
		class := st.classOf(r.Key)
		counter := st.keyCounters.Of(class)
		st.keysPast[class]++
		if r.Expires != 0 {
			counter.Add(r.Expires)
		}
		keys++
	}
	st.opts.Logger.Info("the store's keys were counted", "keys", keys, "took", time.Since(began))
	return nil
}

// recount counts a change of a key that takes effect. there is set if the key had a record; was
// is that record's expiry, which may have passed. verdict and expires describe its new record.
func (s *Session) recount(key []byte, there bool, was int64, verdict Verdict, expires int64) {
	if !s.counting {
		return
	}
	counters := s.store.keyCounters
	if was != 0 && was <= counters.Since {
		there, was = false, 0
	}
	is := verdict == Put
	if !is {
		expires = 0
	}
	if is == there && was == expires {
		return
	}
	if s.inner(key) {
		return
	}
	class := s.store.classOf(key)
	counter := counters.Of(class) // also for a class of keys that do not expire: see All
	switch {
	case is && !there:
		s.keys[class].add(1)
	case there && !is:
		s.keys[class].add(-1)
	}
	if was == expires {
		return
	}
	if was != 0 {
		counter.Remove(was)
	}
	if expires != 0 {
		counter.Add(expires)
	}
}
