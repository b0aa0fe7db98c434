package hlog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// ErrCorrupt means that the log holds bytes that no record can be.
var ErrCorrupt = errors.New("hlog: corrupt log")

// Visitor takes records from one goroutine of [Log.Scan].
type Visitor interface {
	// Visit takes a record. The image is valid during the call.
	Visit(addr int64, im Image) error
	// End is called at last, also after an error.
	End() error
}

const (
	// scanRun is the number of bytes that a goroutine of Scan takes at a time, at least a page.
	scanRun = 8 << 20
	// maxScanners bounds the goroutines of a Scan, each of which opens a queue.
	maxScanners = 16
)

// Scan visits every record between two addresses, except those that never became reachable, from
// several goroutines, in any order. Each has a visitor of its own, and calls visitor for it. A record
// begins at from. All of memory is checked, also the part below from, whose records are not visited.
// It is for recovery: the log must not be used meanwhile. read, unless it is nil, is called with the
// number of bytes that were read, from any goroutine. Its error ends Scan.
//
// It returns an error for what would mislead a session that follows links in memory: a link
// that does not lead to an older record, or a hole. It cannot check the bytes of keys and
// values. It returns the addresses to which links may lead, and the first error.
func (l *Log) Scan(from, tail int64, visitor func() Visitor, read func(bytes int64) error) (starts Starts, err error) {
	head := min(l.Head(), tail)
	starts = newStarts(head, tail, l.pageSize)
	if read == nil {
		read = func(int64) error { return nil }
	}
	cold, hot := l.runs(min(from, head), head), l.runs(head, tail)
	err = l.atOnce(tail-min(from, head), func(stop func() bool) error {
		v := visitor()
		err := l.scanCold(cold, v, stop, read)
		for at, end := hot(); err == nil && at < end && !stop(); at, end = hot() {
			err = l.walk(at, end, func(addr int64, im Image) error {
				starts.add(addr)
				if addr < from || im.Header.Invalid() {
					return nil
				}
				return v.Visit(addr, im)
			})
			err = cmp.Or(err, read(max(end-max(at, from), 0)))
		}
		return cmp.Or(err, v.End())
	})
	if err != nil {
		return starts, err
	}
	// All records in memory are known now.
	hot = l.runs(head, tail)
	err = l.atOnce(tail-head, func(stop func() bool) error {
		for at, end := hot(); at < end && !stop(); at, end = hot() {
			err := l.walk(at, end, func(addr int64, im Image) error { return starts.check(addr, im.Header) })
			if err != nil {
				return err
			}
		}
		return nil
	})
	return starts, err
}

// atOnce calls work from as many goroutines as there are processors, and runs in so many bytes. It
// returns the first error; stop reports whether there is one.
func (l *Log) atOnce(bytes int64, work func(stop func() bool) error) error {
	var group errgroup.Group
	var failed atomic.Bool
	for range min(int64(runtime.GOMAXPROCS(0)), maxScanners, bytes/l.scanRun+1) {
		group.Go(func() error {
			err := work(failed.Load)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}

// runs returns a function for several goroutines, which divides a part of the log into runs. They
// end where pages do. The last one is empty.
func (l *Log) runs(from, to int64) (next func() (at, end int64)) {
	var taken atomic.Int64
	return func() (int64, int64) {
		at := from&^(l.scanRun-1) + (taken.Add(1)-1)*l.scanRun
		return min(max(at, from), to), min(at+l.scanRun, to)
	}
}

// scanCold visits the records of runs on the device.
func (l *Log) scanCold(runs func() (at, end int64), v Visitor, stop func() bool, read func(int64) error) (err error) {
	w := l.NewWalker(nil)
	w.ahead.least = lastPiece // all of a run is read
	defer func() { err = errors.Join(err, w.Close()) }()
	for at, end := runs(); at < end && !stop(); at, end = runs() {
		if err := w.walkFrom(context.Background(), at, end); err != nil {
			return err
		}
		for {
			found, err := w.Next(context.Background())
			if err != nil {
				return err
			}
			if !found {
				break
			}
			if err := v.Visit(w.Record()); err != nil {
				return err
			}
		}
		if err := read(end - at); err != nil {
			return err
		}
	}
	return nil
}

// walk calls visit for the records of a run in memory. The run begins with a record.
func (l *Log) walk(at, end int64, visit func(addr int64, im Image) error) error {
	for at < end {
		next := min(at+l.rest(at), end)
		if err := l.walkPage(l.frame(at, int(next-at)), at, visit); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// walkPage calls visit for the records of one page, or of its used part, at addr.
func (l *Log) walkPage(page []byte, addr int64, visit func(addr int64, im Image) error) error {
	whole := (addr+int64(len(page)))&int64(l.pageSize-1) == 0
	for at := 0; len(page)-at >= headerSize; {
		if h := Header(binary.LittleEndian.Uint64(page[at:])); whole && l.unused(addr+int64(at), h) {
			return nil // the unused end; there is none before the tail
		}
		im, need, err := l.layout.Decode(page[at:])
		if err = l.judgeImage(addr+int64(at), im.Header, need, int64(len(page)-at), err); err != nil {
			return err
		}
		if err := visit(addr+int64(at), im); err != nil {
			return err
		}
		at += need
	}
	return nil
}

// judge returns an error if there cannot be a record of size bytes at addr, with rest bytes
// left in its page.
func (l *Log) judge(addr int64, h Header, size, rest int64) error {
	switch {
	case !h.Used():
		return damage(addr, "no record: header %#x", uint64(h))
	case size > rest:
		return damage(addr, "record of %d bytes extends beyond its page", size)
	case h.Previous() >= addr:
		return damage(addr, "its link leads to %d, where no older record begins", h.Previous())
	}
	return nil
}

// judgeImage is judge for a record that was read from a device and decoded with err. It was
// not updated while it was written, so it cannot be locked.
func (l *Log) judgeImage(addr int64, h Header, need int, rest int64, err error) error {
	switch {
	case err != nil:
		return damage(addr, "%w", err)
	case h.Locked():
		return damage(addr, "the record is locked")
	}
	return l.judge(addr, h, int64(need), rest)
}

func damage(addr int64, format string, args ...any) error {
	return fmt.Errorf("%w: at address %d: %w", ErrCorrupt, addr, fmt.Errorf(format, args...))
}

// rest is the number of bytes from addr to the end of its page.
func (l *Log) rest(addr int64) int64 { return int64(l.pageSize) - addr&int64(l.pageSize-1) }

// unused reports whether a header at addr marks the unused end of a page, which is not at
// the page's start.
func (l *Log) unused(addr int64, h Header) bool {
	return h == 0 && addr&int64(l.pageSize-1) != 0 && addr != FirstAddress
}

// Starts are the addresses from head on where records begin, one bit for each 8 bytes:
// sessions follow links to them without further checks.
type Starts struct {
	head int64
	base int64 // of the bits: the page of head begins there, so that no word belongs to two pages
	bits []uint64
}

func newStarts(head, tail int64, pageSize int) Starts {
	base := head &^ int64(pageSize-1)
	return Starts{head, base, make([]uint64, (tail-base)/(8*64)+1)}
}

func (s Starts) add(addr int64) {
	if n := (addr - s.base) / 8; addr >= s.head {
		s.bits[n/64] |= 1 << (n % 64)
	}
}

// check returns an error if a record at addr has a link that may not be followed.
func (s Starts) check(addr int64, h Header) error {
	if previous := h.Previous(); !s.May(previous) {
		return damage(addr, "its link leads to %d, where no older record begins", previous)
	}
	return nil
}

// May reports whether a link may lead to addr, which is below the tail: to a record in memory
// that was added, or to the device, where it is checked when it is read.
func (s Starts) May(addr int64) bool {
	n := (addr - s.base) / 8
	return addr < s.head || addr%8 == 0 && s.bits[n/64]&(1<<(n%64)) != 0
}
