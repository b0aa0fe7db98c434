package kv

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/missratio"
	"github.com/redykv/redykv/kv/internal/index"
)

// Sampling of accesses, for the miss ratio curve. A session passes two kinds of accesses to the
// store's sampler: all those to keys whose hash is below view.sampled, and now and then a run of
// consecutive accesses, the witnesses. During such a run every hash is below view.sampled. Plain
// calls of sampled keys go the general way, so the direct ways only compare the hash.

const (
	// maxWitnesses bounds the length of a run of witnesses.
	maxWitnesses = 256
	// newViews is the interval at which sessions get a new view while accesses are sampled, and with it
	// a run of witnesses.
	newViews = 10 * time.Millisecond
)

// sampling is the sampler of a store.
type sampling struct {
	switching sync.Mutex // serializes SetSampling and its end; guards stop
	stop      chan struct{}
	stopped   chan struct{}

	sampler atomic.Pointer[missratio.Sampler] // nil while sampling is off
	limit   atomic.Uint64                     // keys with a lower hash are sampled
}

// MissRatioCurve predicts where reads would find their records with other sizes of memory.
type MissRatioCurve struct {
	// Points are the sizes, in ascending order, and what is predicted for them. The share of the read
	// cache is that of Options.ReadCache.
	Points []MissRatio `json:"points"`
	// Now is the present size, with the measured shares since the store was opened.
	Now MissRatio `json:"now"`
	// LogBytes is the size of the log.
	LogBytes int64 `json:"log_bytes"`
	// Sampling says whether accesses are sampled.
	Sampling bool `json:"sampling"`
	// Model answers for other settings. It is nil if there were no accesses.
	Model *missratio.Model `json:"model,omitempty"`
}

// MissRatio is where reads find their records with a size of memory, as shares of all reads.
type MissRatio struct {
	Memory   int64   `json:"memory_bytes"` // as Options.Memory
	InMemory float64 `json:"memory"`       // the log's memory
	InCache  float64 `json:"cache"`        // the read cache
	OnDevice float64 `json:"device"`
}

// SetSampling begins or ends the sampling of accesses: see Options.SampleAccesses. It takes
// effect in every session with its next operations. If accesses are sampled already,
// SetSampling(true) drops what was counted, as is useful when the load has changed.
func (st *Store) SetSampling(on bool) error {
	st.sampling.switching.Lock()
	defer st.sampling.switching.Unlock()
	if st.isClosed() {
		return fmt.Errorf("kv: sampling accesses: %w", ErrClosed)
	}
	switch {
	case !on:
		st.stopSampling()
	case st.sampling.stop == nil:
		st.startSampling()
	default:
		st.sampling.sampler.Load().Forget()
	}
	return nil
}

// Sampling reports whether accesses are sampled.
func (st *Store) Sampling() bool { return st.sampling.sampler.Load() != nil }

// startSampling begins sampling. The caller holds switching.
func (st *Store) startSampling() {
	sp := &st.sampling
	record := 0
	if st.log.Layout().Fixed() {
		record = st.log.Layout().Size(st.opts.KeySize, st.opts.ValueSize, false)
	}
	s := missratio.New(missratio.Options{
		Memory: st.log.Budget(), PageSize: int64(st.log.PageSize()), MutableFraction: st.opts.MutableFraction,
		RecordSize: record, MaxRate: st.opts.samplingRate, WitnessEvery: st.opts.witnessEvery,
	})
	sp.sampler.Store(s)
	sp.limit.Store(s.Limit())
	st.epoch.Bump()
	sp.stop, sp.stopped = make(chan struct{}), make(chan struct{})
	go sp.renewViews(st, sp.stop, sp.stopped)
}

// renewViews gives sessions new views until stop is closed.
func (sp *sampling) renewViews(st *Store, stop, stopped chan struct{}) {
	defer close(stopped)
	if st.opts.stillSampling {
		<-stop
		return
	}
	ticker := time.NewTicker(newViews)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			st.epoch.Bump()
		}
	}
}

// stopSampling ends sampling. The caller holds switching.
func (st *Store) stopSampling() {
	sp := &st.sampling
	if sp.stop == nil {
		return
	}
	close(sp.stop)
	<-sp.stopped
	sp.stop, sp.stopped = nil, nil
	sp.sampler.Store(nil)
	sp.limit.Store(0)
	st.epoch.Bump()
}

// lookSampling sets view.sampled for a new view, and begins a run of witnesses.
func (s *Session) lookSampling() {
	s.view.sampled = s.store.sampling.limit.Load()
	if s.view.sampled == 0 {
		return
	}
	var done uint64
	for kind := range s.counts.ops {
		done += s.counts.ops[kind].load()
	}
	s.witnesses = min(s.witnesses+float64(done-s.witnessed)/float64(cmp.Or(s.store.opts.witnessEvery, missratio.DefaultWitnessEvery)), maxWitnesses)
	s.witnessed = done
	if s.witnesses >= 1 {
		s.view.sampled = math.MaxUint64
	}
}

// samplePlain is sample outside an epoch.
func (s *Session) samplePlain(op *Op, hash uint64) {
	s.enter()
	s.sample(op, hash)
	s.leave()
}

// sampleLane is sample for the operations of a lane whose keys have been hashed.
func (s *Session) sampleLane(l *lane) {
	for i := range l.n {
		if l.hashes[i] < s.view.sampled {
			s.sample(l.ops[i], l.hashes[i])
		}
	}
}

// sample passes an operation that begins to the sampler, if it is to be sampled. The session is inside an
// epoch.
func (s *Session) sample(op *Op, hash uint64) {
	if hash >= s.view.sampled {
		return
	}
	sp := &s.store.sampling
	sampler := sp.sampler.Load()
	if sampler == nil {
		return
	}
	a, ok := s.access(op, hash)
	if !ok {
		return
	}
	if s.witnesses >= 1 {
		sampler.Witness(a)
		if s.witnesses--; s.witnesses < 1 {
			s.view.sampled = sp.limit.Load()
		}
	}
	if hash >= sp.limit.Load() {
		return
	}
	if limit := sampler.Add(a); limit < sp.limit.Load() {
		sp.lower(sampler, limit)
		s.view.sampled = min(s.view.sampled, limit)
	}
}

// sampleSize passes the size of a record that was read from the device to the sampler.
func (s *Session) sampleSize(hash uint64, size int) {
	if sampler := s.store.sampling.sampler.Load(); sampler != nil {
		sampler.SetSize(hash, size)
	}
}

// lower lowers the limit, unless another sampler has taken the sampler's place. Sessions take it with
// their next view.
func (sp *sampling) lower(sampler *missratio.Sampler, limit uint64) {
	for old := sp.limit.Load(); limit < old && sp.sampler.Load() == sampler; old = sp.limit.Load() {
		if sp.limit.CompareAndSwap(old, limit) {
			return
		}
	}
}

// access describes an operation for the sampler. ok is false if it is none of a caller's and moves no
// record.
func (s *Session) access(op *Op, hash uint64) (a missratio.Access, ok bool) {
	a = missratio.Access{Kind: missratio.Read, Hash: hash, Distance: -1, Tail: s.log.Tail()}
	if at, e, _ := s.view.index.Locate(hash); !at.None() && e.Address() >= s.log.Begin() {
		a.Distance = max(a.Tail-e.Address(), 0)
		a.Size = s.sizeInMemory(e)
	}
	switch op.Kind {
	case OpRead:
		return a, true
	case OpUpsert, OpInsert:
		a.Kind, a.Size = missratio.Write, s.layout.Size(len(op.Key), len(op.Value), op.Expires != 0)
		if s.counting || op.Kind == OpInsert {
			a.Kind = missratio.Update
		}
		return a, true
	case OpDelete:
		a.Kind = missratio.Write
		if s.counting {
			a.Kind = missratio.Update
		}
		return a, true
	case OpRMW:
		a.Kind = missratio.Update
		return a, true
	case opMove:
		a.Kind = missratio.Move
		return a, a.Distance >= 0 && a.Tail-a.Distance == s.traceOf(op).source
	}
	return a, false
}

// sizeInMemory returns the size of an entry's newest record, if that is in memory or all records have the
// same size, else 0.
func (s *Session) sizeInMemory(e index.Entry) int {
	switch {
	case s.layout.Fixed():
		return s.record
	case e.Address() < s.view.head:
		return 0
	}
	return int(s.layout.Extent(s.view.record(e.Address())))
}

// MissRatioCurve returns what sampling predicts: see [Store.SetSampling]. It is empty, except for
// Now, while accesses are not sampled.
func (st *Store) MissRatioCurve() MissRatioCurve {
	var c MissRatioCurve
	m := st.Metrics()
	c.LogBytes = m.Log.Tail - m.Log.Begin
	c.Now = MissRatio{Memory: m.Log.MemoryBudget + m.ReadCache.Budget + m.Device.CacheBudget}
	if reads := float64(m.Operations.Reads); reads > 0 {
		c.Now.InMemory, c.Now.InCache = float64(m.ReadsFrom.Memory)/reads, float64(m.ReadsFrom.Cache)/reads
		c.Now.OnDevice = 1 - c.Now.InMemory - c.Now.InCache
	}
	sampler := st.sampling.sampler.Load()
	if c.Sampling = sampler != nil; !c.Sampling {
		return c
	}
	if c.Model = sampler.Model(); c.Model == nil {
		return c
	}
	for _, log := range c.Model.Curve() {
		memory := int64(float64(log)/(1-st.opts.ReadCache)) + st.opts.deviceCache
		c.Points = append(c.Points, st.missRatio(c.Model, memory))
	}
	return c
}

// missRatio predicts for one size of memory.
func (st *Store) missRatio(m *missratio.Model, memory int64) MissRatio {
	forLog, forCache := st.opts.shares(memory)
	shares := m.Predict(missratio.Setting{Memory: forLog, Cache: forCache})
	warm, cached := shares.Hit()
	return MissRatio{Memory: memory, InMemory: warm, InCache: cached - warm, OnDevice: max(1-cached, 0)}
}
