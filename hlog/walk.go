package hlog

import (
	"context"
	"encoding/binary"

	"github.com/redykv/redykv/internal/epoch"
)

// Walker visits the records between two addresses, oldest first, while sessions use the log.
// It reads the device ahead through its own queue, and copies records in memory in batches,
// each inside an epoch. Values are never torn; a value that is updated in place may be from
// any moment of the walk. Records that never became reachable are left out, and so is what is
// truncated before the walk reaches it.
//
// A Walker belongs to one goroutine at a time, which is outside of its handle's epoch.
type Walker struct {
	log    *Log
	handle *epoch.Handle

	at, end int64 // the range that was not visited yet
	skip    int64 // records below it are skipped

	address int64 // of the record that Next found
	image   Image

	batch []copied // from memory; [taken:] were not visited yet
	taken int
	bytes []byte // of the keys and values in batch

	ahead readAhead // of the device
	// window is the device's bytes from at on: in a piece that was read ahead or, if a
	// record crosses pieces, in joined.
	window []byte
	joined []byte
	inside bool // window lies in joined
}

// copied is a copy of a record in memory. Its key is bytes[key:value], its value
// bytes[value:end].
type copied struct {
	address, expires int64
	header           Header
	key, value, end  int
}

// A batch ends with the record that makes it this large: eviction waits for the walker's epoch.
const (
	batchRecords = 64
	batchBytes   = 32 << 10
)

// NewWalker returns a walker without a range. The handle is for records in memory; it may be nil if
// there are none in any range.
func (l *Log) NewWalker(handle *epoch.Handle) *Walker {
	return &Walker{log: l, handle: handle, ahead: readAhead{log: l, least: firstPiece, size: firstPiece}}
}

// Settle waits until every record below the present tail is complete, and returns that tail.
// A walk does not go further. The caller is outside of every epoch.
func (l *Log) Settle() int64 {
	tail := l.Tail()
	l.epoch.Wait(l.epoch.Bump())
	l.settled.raise(tail)
	return tail
}

// SettleTo returns where a walk to to ends, 0 for the tail. It settles the log only if that
// is necessary.
func (l *Log) SettleTo(to int64) int64 {
	if to > 0 && to <= l.settled.load() {
		return to
	}
	tail := l.Settle()
	if to <= 0 || to > tail {
		return tail
	}
	return to
}

// Walk begins a walk over the records that begin between from and to. from is any address;
// to is not above what was settled. It ends the walk before, and returns an error if the
// reads of that do not end before ctx.
func (w *Walker) Walk(ctx context.Context, from, to int64) error {
	page := from &^ int64(w.log.pageSize-1)
	w.at, w.skip, w.end = max(page, w.log.Begin()), from, to
	w.taken, w.batch, w.window, w.inside = 0, w.batch[:0], nil, false
	if cap(w.joined) > lastPiece {
		w.joined = nil
	}
	return w.ahead.stop(ctx)
}

// walkFrom is Walk from an address where a record begins, or a page: nothing before it is read.
func (w *Walker) walkFrom(ctx context.Context, from, to int64) error {
	err := w.Walk(ctx, from, to)
	w.at = from
	return err
}

// Pause waits for the reads ahead and keeps what they read. A caller that may not go on for long
// calls it: a device may wait for reads that were not polled, as one does that gives memory back.
// If ctx ends first, the reads go on: see Pending.
func (w *Walker) Pause(ctx context.Context) error { return w.ahead.await(ctx) }

// Pending reports whether reads ahead have not ended.
func (w *Walker) Pending() bool { return w.ahead.pending() }

// Close releases the walker's queue.
func (w *Walker) Close() error { return w.ahead.close() }

// Position is the address where the walk continues after the record found.
func (w *Walker) Position() int64 {
	if w.taken < len(w.batch) {
		return w.batch[w.taken].address
	}
	return w.at
}

// Record returns the record that Next found. Its bytes are valid until the next call of Next.
func (w *Walker) Record() (address int64, im Image) { return w.address, w.image }

// Next goes to the next record; found is false at the end of the walk. An error ends it too. ctx
// bounds the waiting for the device.
func (w *Walker) Next(ctx context.Context) (found bool, err error) {
	for {
		if w.taken < len(w.batch) {
			w.takeCopied()
			return true, nil
		}
		if begin := w.log.Begin(); w.at < begin {
			w.at, w.window = begin, nil
		}
		switch {
		case w.at >= w.end:
			return false, nil
		case w.at >= w.log.Head():
			w.window = nil
			err = w.copyBatch()
		default:
			found, err = w.takeCold(ctx)
		}
		if err != nil && w.at < w.log.Begin() {
			continue // it was truncated during the read
		}
		if err != nil {
			w.at = w.end
		}
		if found || err != nil {
			return found, err
		}
	}
}

// takeCopied goes to the next record of the batch.
func (w *Walker) takeCopied() {
	b := &w.batch[w.taken]
	w.taken++
	w.address = b.address
	w.image = Image{
		Header: b.header, Expires: b.expires,
		Key: w.bytes[b.key:b.value:b.value], Value: w.bytes[b.value:b.end:b.end],
	}
}

// copyBatch copies records from memory.
func (w *Walker) copyBatch() error {
	w.taken, w.batch, w.bytes = 0, w.batch[:0], w.bytes[:0]
	w.handle.Enter()
	defer w.handle.Leave()
	if w.at < w.log.Head() {
		return nil // evicted meanwhile
	}
	for n := 0; n < batchRecords && len(w.bytes) < batchBytes && w.at < w.end; n++ {
		r := w.log.At(w.at)
		h := r.Header()
		if w.log.unused(w.at, h) {
			w.at += w.log.rest(w.at)
			continue
		}
		size := w.log.layout.Extent(r)
		if err := w.log.judge(w.at, h, size, w.log.rest(w.at)); err != nil {
			return err
		}
		if !h.Invalid() && w.at >= w.skip {
			b := copied{address: w.at, key: len(w.bytes)}
			w.bytes = append(w.bytes, w.log.layout.Key(r)...)
			b.value = len(w.bytes)
			w.bytes, b.header, b.expires = w.log.layout.Read(w.bytes, r)
			b.end = len(w.bytes)
			w.batch = append(w.batch, b)
		}
		w.at += size
	}
	return nil
}

// takeCold takes one record from what was read ahead; found reports whether it is to be
// visited.
func (w *Walker) takeCold(ctx context.Context) (found bool, err error) {
	if err := w.fill(ctx, headerSize); err != nil {
		return false, err
	}
	h := Header(binary.LittleEndian.Uint64(w.window))
	if w.log.unused(w.at, h) {
		w.at, w.window = w.at+w.log.rest(w.at), nil
		return false, nil
	}
	im, need, err := w.log.layout.Decode(w.window)
	if err = w.log.judgeImage(w.at, h, need, w.log.rest(w.at), err); err != nil {
		return false, err
	}
	if need > len(w.window) {
		return false, w.fill(ctx, need) // and decode again
	}
	w.address, w.image = w.at, im
	w.at, w.window = w.at+int64(need), w.window[need:]
	return !h.Invalid() && w.address >= w.skip, nil
}

// fill makes window hold n bytes, which do not cross the page's end.
func (w *Walker) fill(ctx context.Context, n int) error {
	for len(w.window) < n {
		// The next piece may overwrite the one that window lies in.
		if w.inside {
			w.joined = w.joined[:copy(w.joined, w.window)]
		} else {
			w.joined = append(w.joined[:0], w.window...)
		}
		had := len(w.joined)
		w.window, w.inside = nil, false
		// What begins before end may extend to the end of the page.
		limit := min(w.log.Head(), (w.end+int64(w.log.pageSize)-1)&^int64(w.log.pageSize-1))
		piece, err := w.ahead.take(ctx, w.at+int64(had), limit)
		switch {
		case err != nil:
			return err
		case had == 0:
			w.window = piece
		default:
			w.joined = append(w.joined, piece...)
			w.window, w.inside = w.joined, true
		}
	}
	return nil
}
