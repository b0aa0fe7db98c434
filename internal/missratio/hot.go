package missratio

import "math"

// hotKeys counts the accesses of the latest witnesses. A key with many of them is hot: its share of
// all accesses is known from the witnesses alone.
type hotKeys struct {
	recent []witness // a ring
	next   int       // index of the oldest one, if the ring is full
	counts map[uint64]hotKey
	states map[uint64]*hotState // of the hot keys

	reads, updates [sizes]tally // witnesses of hot keys, by distance in each log, decayed
	counted, all   float64      // number of them, and of all witnesses, decayed
}

// witness is an access that was chosen at random.
type witness struct {
	hash uint64
	kind Kind
}

// hotKey counts the witnesses of one key.
type hotKey struct{ reads, writes, updates uint32 }

// hotState is where the record of a hot key is, as of its last witness.
type hotState struct {
	address int64        // in the real log
	tail    int64        // of the real log
	sealed  bool         // the real log did not update the record in place
	at      [sizes]int64 // in the simulated logs
	tails   [sizes]int64
}

const (
	witnesses = 1 << 15
	// hotCount is the number of witnesses of a hot key: one in 4,096 when the ring is full.
	hotCount = 8
)

func newHotKeys() hotKeys {
	return hotKeys{counts: make(map[uint64]hotKey), states: make(map[uint64]*hotState)}
}

func (k *hotKey) all() uint32 { return k.reads + k.writes + k.updates }

// count adds n to the accesses of a kind.
func (k *hotKey) count(kind Kind, n uint32) {
	switch kind {
	case Read:
		k.reads += n
	case Write:
		k.writes += n
	case Update:
		k.updates += n
	}
}

// is reports whether a key is hot.
func (h *hotKeys) is(hash uint64) bool {
	k := h.counts[hash]
	return k.all() >= hotCount
}

// add takes a witness, drops the oldest one if there are many, and returns the key's counts.
func (h *hotKeys) add(a Access) hotKey {
	if len(h.recent) < witnesses {
		h.recent = append(h.recent, witness{a.Hash, a.Kind})
	} else {
		h.drop(h.recent[h.next])
		h.recent[h.next] = witness{a.Hash, a.Kind}
		h.next = (h.next + 1) % witnesses
	}
	k := h.counts[a.Hash]
	k.count(a.Kind, 1)
	h.counts[a.Hash] = k
	return k
}

// drop removes a witness.
func (h *hotKeys) drop(w witness) {
	k := h.counts[w.hash]
	k.count(w.kind, ^uint32(0))
	if k.all() < hotCount {
		delete(h.states, w.hash)
	}
	if k.all() == 0 {
		delete(h.counts, w.hash)
		return
	}
	h.counts[w.hash] = k
}

func (h *hotKeys) decay() {
	h.counted /= 2
	h.all /= 2
	for i := range h.reads {
		h.reads[i].decay()
		h.updates[i].decay()
	}
}

// Witness takes an access of a random sample of all accesses, whatever its key.
func (s *Sampler) Witness(a Access) {
	if a.Kind == Move {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hot.all++
	k := s.hot.add(a)
	if k.all() < hotCount || a.Distance < 0 {
		return
	}
	state, ok := s.hot.states[a.Hash]
	if !ok {
		state = &hotState{}
		s.hot.states[a.Hash] = state
	}
	for i := range s.logs {
		l := &s.logs[i]
		if ok {
			s.pass(l, i, state, a, k)
		} else {
			state.at[i] = l.tail - a.Distance
		}
		bucket := bucketOf(l.tail - state.at[i])
		switch a.Kind {
		case Read:
			s.hot.reads[i][bucket]++
		case Update:
			s.hot.updates[i][bucket]++
		}
		if a.Kind != Read && !l.inPlace(state.at[i]) {
			state.at[i] = l.tail
		}
		state.tails[i] = l.tail
	}
	s.hot.counted++
	real := &s.logs[below*perDoubling]
	state.address, state.tail = a.Tail-a.Distance, a.Tail
	state.sealed = state.address < s.sealed || a.Distance > int64(real.frames.meanMutable())
}

// pass simulates what has become of a hot key's record in log i since its last witness. The writes in
// between were not seen: they are drawn at random, as many as the key's witnesses say. What happened in the real log
// is known: a record that could not be updated in place and is where it was has not been written, and one that has moved was
// written then.
func (s *Sampler) pass(l *logSim, i int, state *hotState, a Access, k hotKey) {
	address := a.Tail - a.Distance
	moved := address != state.address
	if !moved && state.sealed {
		return
	}
	grown := float64(l.tail - state.tails[i])
	if writes := float64(k.writes+k.updates) / float64(k.all()) * float64(s.options.WitnessEvery); writes > 0 && grown > 0 {
		gap, mutable := grown/writes, l.mutable()
		for range maxPasses {
			// The first write after the record has left the mutable part moves it.
			next := math.Max(float64(state.at[i])+mutable, float64(state.tails[i])) - gap*math.Log(s.random.float())
			if next > float64(l.tail) {
				break
			}
			state.at[i] = int64(next)
		}
	}
	if !moved || a.Tail == state.tail {
		return
	}
	then := state.tails[i] + int64(grown*float64(address-state.tail)/float64(a.Tail-state.tail))
	if then = max(then, state.at[i]); float64(then-state.at[i]) > l.mutable() {
		state.at[i] = then
	}
}

// maxPasses bounds the simulated moves of a record between two witnesses.
const maxPasses = 64
