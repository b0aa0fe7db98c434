package missratio

import "math"

// Replay passes a recorded or generated sequence of accesses to a sampler. It takes the part of the
// real log: it knows where the record of every key is, which takes some 40 bytes for each key.
type Replay struct {
	Sampler *Sampler

	log       logSim
	addresses map[uint64]int64
	accesses  uint64
	every     uint64
}

// replayWitnessEvery is the number of replayed accesses for a witness. They cost nobody's time.
const replayWitnessEvery = 16

// NewReplay returns a replay with a new sampler. MaxRate and WitnessEvery of the options are set by it.
func NewReplay(o Options) *Replay {
	o.MaxRate, o.WitnessEvery = 1, replayWitnessEvery
	s := New(o)
	return &Replay{
		Sampler: s, addresses: make(map[uint64]int64), every: replayWitnessEvery,
		log: logSim{frames: pagesOf(o.Memory, o.PageSize, s.options.MutableFraction), tail: tailStart},
	}
}

// Keys returns the number of keys with a record, and LogBytes the bytes that were appended.
func (r *Replay) Keys() int { return len(r.addresses) }

// LogBytes returns the bytes that were appended to the log.
func (r *Replay) LogBytes() int64 { return r.log.tail - tailStart }

// Access replays an access of a record of size bytes.
func (r *Replay) Access(kind Kind, hash uint64, size int) {
	a := Access{Kind: kind, Hash: hash, Size: size, Distance: -1, Tail: r.log.tail}
	at, ok := r.addresses[hash]
	if ok {
		a.Distance = r.log.tail - at
	}
	// Witnesses are chosen at random, since a sequence may repeat itself.
	if r.Sampler.random.float()*float64(r.every) <= 1 {
		r.Sampler.Witness(a)
	}
	r.Sampler.Add(a)
	if r.accesses++; kind != Read && (!ok || !r.log.inPlace(at)) {
		r.addresses[hash] = r.log.append(max(size, 1), 1)
	}
}

// Hash spreads the hash of a key or its number over all bits, as a sampler wants it.
func Hash(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return min(n^n>>31, math.MaxUint64-1)
}
