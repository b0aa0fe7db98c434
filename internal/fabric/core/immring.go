package core

import (
	"errors"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// ErrCorruptRing is returned when the other side of a ring wrote impossible marks.
var ErrCorruptRing = errors.New("fabric: ring of immediates is corrupt")

// Words of an ImmRing. Each mark has its own cache line.
const (
	wordTail    = 0  // entries pushed; the producer writes it
	wordHead    = 8  // entries popped; the consumer writes it
	wordBlocked = 16 // 1: the producer waits for room
	wordParked  = 24 // 1: the consumer is parked and wants to be woken
	wordEntries = 32
)

// ImmEntries is the number of immediates that are buffered for an owner that does not poll.
// Further WriteImm operations of the peer wait until it does.
const ImmEntries = 1024

// ImmRingWords is the size of an ImmRing in 8-byte words.
const ImmRingWords = wordEntries + ImmEntries

// ImmRing is a ring of a peer's immediates with one producer and one consumer. Its words may
// lie in memory shared with another process.
//
// The producer owns the entries in [tail, head+ImmEntries), the consumer those
// in [head, tail); publishing a mark hands entries over. Each side keeps its own
// mark privately, reads only the other's mark from the words, and checks it. A hostile peer
// can write wrong marks but cannot make this side access memory outside the ring.
type ImmRing struct {
	words []uint64
	mine  uint64 // the mark that this side writes
}

// NewImmRing returns one side of the ring in words, which has length ImmRingWords and is
// initially zero.
func NewImmRing(words []uint64) ImmRing {
	return ImmRing{words: words[:ImmRingWords:ImmRingWords]}
}

// Push appends an immediate and the length of its write. It returns false if the ring is full;
// the consumer then sees that the producer is blocked. Called by the producer.
func (r *ImmRing) Push(imm uint32, n int) (bool, error) {
	used := r.mine - atomic.LoadUint64(&r.words[wordHead])
	if used > ImmEntries {
		return false, ErrCorruptRing
	}
	if used == ImmEntries {
		// Set the word first, then check again: a consumer that did not see the
		// word has moved head; one that saw it wakes the producer.
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

// TakeParked reports whether the consumer is parked, and clears that state: the caller must
// wake the consumer. Called by the producer after Push.
func (r *ImmRing) TakeParked() bool { return r.take(wordParked) }

// Park asks the producer for a wake-up after its next Push. The consumer checks for entries
// once more before it sleeps.
func (r *ImmRing) Park() { atomic.StoreUint64(&r.words[wordParked], 1) }

// Unpark withdraws the request for a wake-up. Called by the consumer.
func (r *ImmRing) Unpark() { atomic.StoreUint64(&r.words[wordParked], 0) }

// Empty reports whether the ring has no entries. Called by the consumer.
func (r *ImmRing) Empty() bool { return atomic.LoadUint64(&r.words[wordTail]) == r.mine }

// Pop moves immediates into out as OpRecv completions. The second result reports whether the
// producer waits for room; the caller then wakes it. Called by the consumer.
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
