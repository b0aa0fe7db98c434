package redytier

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// pieceSize is the size of a piece, unless the cache is so small that a segment is smaller.
	// Refills copy as much at once, and pages of the log are seldom smaller. A record for each
	// costs a 2048th of the cache.
	pieceSize = 64 << 10
	// recordSize is the size of a piece's record.
	recordSize = 32
	// writtenAtOnce bounds the records of one write.
	writtenAtOnce = 64
)

// pieces lets a device take up a cache that outlives its process, and believe nothing of what
// lies there. The ring is divided into pieces. A table behind it has a record of each: the
// log address of the piece, the life that wrote it, and a checksum of its bytes.
//
//	cache: [ ring of pieces                 | records | unused ]
//
// A life is what a process does with the log between two calls of Start. It has a random
// number. A piece of an earlier life is read and compared with its record before it answers
// reads. It does not answer if
//
//   - the record does not match its own checksum: it is torn, or was lost with its memory;
//   - the record has another log address than the ring has there now: it is of another lap;
//   - the bytes do not match the record's checksum: a part of the piece was not written;
//   - the life is not known, or a later one started below the end of the piece: the log may have
//     other bytes there than the earlier life wrote.
//
// A record is written when the bytes of its piece are final. A log that ends inside a block writes
// that block again; so the record is written when the log has begun to write behind the piece. A
// write that fails, or whose memory is lost, needs no record of that: the bytes do not match. A
// piece without a record is refilled. Lives are stored beside the log before the log grows, see
// [Companion].
type pieces struct {
	d     *Device
	shift uint  // log2 of a piece
	table int64 // cache address of the first record
	cache func() Identity
	kept  Companion

	mu      sync.Mutex // guards the fields up to failed
	used    bool       // the ring may hold pieces of earlier lives
	lives   lives
	current recorder
	stored  Identity  // of the companion
	failed  time.Time // when the companion could not be written; zero: it is there

	closing atomic.Bool
	demand  chan int64         // pieces that reads have met unchecked
	wake    chan struct{}      // holds a token when there may be work
	ended   chan struct{}      // closed when the goroutine has ended
	checks  checker            // belongs to the goroutine
	end     context.CancelFunc // ends the goroutine
}

// layout divides a cache of a capacity into the ring and the records of its pieces.
func layout(capacity int64) (ring *segments, shift uint, table int64) {
	// Half a segment, as the segments get smaller by the table.
	piece := min(pieceSize, int64(1)<<(bits.Len64(uint64(capacity/minSegments/2))-1))
	records := (capacity + piece - 1) / piece * recordSize
	ring = newSegments(capacity - records)
	return ring, uint(bits.TrailingZeros64(uint64(piece))), ring.size
}

// newPieces returns the pieces of a device, whose ring is that of layout.
func newPieces(d *Device, shift uint, table int64, kept Companion) *pieces {
	return &pieces{
		d: d, shift: shift, table: table, cache: d.cache.Identity, kept: kept,
		demand: make(chan int64, demandDepth), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		checks: newChecker(1 << shift),
	}
}

// adopt makes the pieces of earlier lives, which an earlier process knew, those of the ring.
func (p *pieces) adopt(l lives) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lives, p.used = l, true
}

// run starts the goroutine.
func (p *pieces) run() {
	var ctx context.Context
	ctx, p.end = context.WithCancel(context.Background())
	go p.loop(ctx)
}

// startAt begins a life at the log's tail, and reports whether earlier ones may have pieces.
func (p *pieces) startAt(tail int64) (used bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.begin(tail); err != nil {
		return false, fmt.Errorf("redytier: start at %d: %w", tail, err)
	}
	used, p.used = p.used, true
	return used, nil
}

// finished reports whether the device is closed and all records are written.
func (p *pieces) finished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing.Load() && len(p.current.due) == 0
}

// close ends the goroutine when all records are written, or when ctx ends. No queue is open. The last
// piece gets no record: the log may have gone on without the device.
func (p *pieces) close(ctx context.Context) {
	p.closing.Store(true)
	offer(p.wake)
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
	p.abort()
}

// abort ends the goroutine.
func (p *pieces) abort() {
	p.end()
	<-p.ended
}

// size is the number of bytes of a piece.
func (p *pieces) size() int64 { return 1 << p.shift }

// span is the log addresses of a piece, by its number.
func (p *pieces) span(piece int64) span { return span{piece << p.shift, (piece + 1) << p.shift} }

// recordAt is the cache address of a piece's record.
func (p *pieces) recordAt(piece int64) int64 {
	return p.table + piece%(p.d.segments.size>>p.shift)*recordSize
}

// pieceRecord describes the bytes of one piece.
type pieceRecord struct {
	piece int64 // number
	life  uint64
	sum   uint64 // xxhash64 of the bytes
}

func (r *pieceRecord) append(dst []byte) []byte {
	from := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.piece))
	dst = binary.LittleEndian.AppendUint64(dst, r.life)
	dst = binary.LittleEndian.AppendUint64(dst, r.sum)
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[from:]))
}

// parseRecord is the inverse of append. It is not ok for bytes that are no record, such as
// zeros.
func parseRecord(src []byte) (r pieceRecord, ok bool) {
	if len(src) != recordSize {
		return r, false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(src[8*i:]) }
	return pieceRecord{int64(word(0)), word(1), word(2)}, xxhash.Sum64(src[:24]) == word(3)
}
