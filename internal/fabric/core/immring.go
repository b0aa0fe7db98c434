package core

import (
	"errors"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// ErrCorruptRing says that the other side of a ring wrote marks that cannot be.
var ErrCorruptRing = errors.New("fabric: ring of immediates is corrupt")

// Words of an ImmRing, each mark on a cache line of its own.
const (
	wordTail    = 0  // entries pushed; the producer writes it
	wordHead    = 8  // entries popped; the consumer writes it
	wordBlocked = 16 // 1: the producer waits for room
	wordParked  = 24 // 1: the consumer is parked and wants to be woken
	wordEntries = 32
)

// ImmEntries is how many immediates wait for an owner that does not poll; the
// peer's further WriteImm are held back until it does.
const ImmEntries = 1024

// ImmRingWords is the size of an ImmRing in 8-byte words.
const ImmRingWords = wordEntries + ImmEntries

// ImmRing carries a peer's immediates to a queue pair: one producer, one
// consumer, on plain words that may lie in memory shared with another process.
//
// The producer owns the entries in [tail, head+ImmEntries), the consumer those
// in [head, tail); publishing a mark hands entries over. Each side keeps its own
// mark privately and takes from the words only the other's, which it checks:
// a hostile peer can say wrong things, but not make this side leave the ring.
type ImmRing struct {
	words []uint64
	mine  uint64 // the mark that this side writes
}

// NewImmRing is one side of the ring that lives in words, which are zero at
// first and ImmRingWords long.
func NewImmRing(words []uint64) ImmRing {
	return ImmRing{words: words[:ImmRingWords:ImmRingWords]}
}

// Push appends an immediate and the length of its write. It reports false when
// the ring is full; the consumer will see Blocked then. Producer.
func (r *ImmRing) Push(imm uint32, n int) (bool, error) {
	used := r.mine - atomic.LoadUint64(&r.words[wordHead])
	if used > ImmEntries {
		return false, ErrCorruptRing
	}
	if used == ImmEntries {
		// Say so first and look again after: a consumer that missed the word
		// has moved head, one that saw it will wake us.
		atomic.StoreUint64(&r.words[wordBlocked], 1)
		if r.mine-atomic.LoadUint64(&r.words[wordHead]) == ImmEntries {
			return false, nil
		}
		atomic.StoreUint64(&r.words[wordBlocked], 0)
	}
	entry := uint64(imm)<<32 | uint64(uint32(n))
	atomic.StoreUint64(&r.words[wordEntries+r.mine%ImmEntries], entry)
	r.mine++
	atomic.StoreUint64(&r.words[wordTail], r.mine)
	return true, nil
}

// TakeParked reports whether the consumer wants a wake-up, and takes it upon
// the caller to give one. Producer, after Push.
func (r *ImmRing) TakeParked() bool { return r.take(wordParked) }

// Park asks the producer for a wake-up after its next Push. The consumer looks
// for entries once more before it goes to sleep.
func (r *ImmRing) Park() { atomic.StoreUint64(&r.words[wordParked], 1) }

// Unpark takes the wish for a wake-up back. Consumer.
func (r *ImmRing) Unpark() { atomic.StoreUint64(&r.words[wordParked], 0) }

// Empty reports whether there is nothing to pop. Consumer.
func (r *ImmRing) Empty() bool { return atomic.LoadUint64(&r.words[wordTail]) == r.mine }

// Pop moves immediates into out as OpRecv completions. The second result says
// that the producer waits for room: the caller wakes it. Consumer.
func (r *ImmRing) Pop(out []fabric.Completion) (n int, wake bool, err error) {
	held := atomic.LoadUint64(&r.words[wordTail]) - r.mine
	if held == 0 || len(out) == 0 {
		return 0, false, nil
	}
	if held > ImmEntries {
		return 0, false, ErrCorruptRing
	}
	n = int(min(held, uint64(len(out))))
	for i := range out[:n] {
		entry := atomic.LoadUint64(&r.words[wordEntries+r.mine%ImmEntries])
		out[i] = fabric.Completion{N: int(uint32(entry)), Imm: uint32(entry >> 32), Op: fabric.OpRecv}
		r.mine++
	}
	atomic.StoreUint64(&r.words[wordHead], r.mine)
	return n, r.take(wordBlocked), nil
}

func (r *ImmRing) take(word int) bool {
	return atomic.LoadUint64(&r.words[word]) == 1 && atomic.CompareAndSwapUint64(&r.words[word], 1, 0)
}
