package hlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/mem"
)

// ErrCorrupt means that the log holds bytes that no record can be.
var ErrCorrupt = errors.New("hlog: corrupt log")

// Scan calls visit for every record between two addresses, oldest first, except those that
// never became reachable. A record begins at from, which is not above Head, so that all of
// memory is checked. It is for recovery: the log must not be used meanwhile. The image is
// valid during the call.
//
// It returns an error for what would mislead a session that follows links in memory: a link
// that does not lead to an older record, or a hole. It cannot check the bytes of keys and
// values. It returns the addresses to which links may lead.
func (l *Log) Scan(from, tail int64, visit func(addr int64, im Image) error) (starts Starts, err error) {
	queue, err := l.dev.NewQueue(1)
	if err != nil {
		return starts, fmt.Errorf("hlog: scan: %w", err)
	}
	defer func() { err = errors.Join(err, queue.Close()) }()
	buffer, err := mem.Alloc(l.pageSize)
	if err != nil {
		return starts, fmt.Errorf("hlog: scan: %w", err)
	}
	defer func() { err = errors.Join(err, mem.Free(buffer)) }()
	starts = newStarts(l.Head(), tail)
	for at := from; at < tail; {
		end := min(at+l.rest(at), tail)
		page := buffer[:end-at]
		if at >= l.Head() {
			page = l.frame(at, int(end-at))
		} else if err := readSync(queue, page, at); err != nil {
			return starts, fmt.Errorf("hlog: scan: %w", err)
		}
		if err := l.walk(page, at, starts, visit); err != nil {
			return starts, err
		}
		at = end
	}
	return starts, nil
}

// walk visits the records of one page, or of its used part, at addr.
func (l *Log) walk(page []byte, addr int64, starts Starts, visit func(int64, Image) error) error {
	whole := (addr+int64(len(page)))&int64(l.pageSize-1) == 0
	for at := 0; len(page)-at >= headerSize; {
		if h := Header(binary.LittleEndian.Uint64(page[at:])); whole && l.unused(addr+int64(at), h) {
			return nil // the unused end; there is none before the tail
		}
		im, need, err := l.layout.Decode(page[at:])
		if err = l.judgeImage(addr+int64(at), im.Header, need, int64(len(page)-at), err); err != nil {
			return err
		}
		if previous := im.Header.Previous(); !starts.May(previous) {
			return damage(addr+int64(at), "its link leads to %d, where no older record begins", previous)
		}
		starts.add(addr + int64(at))
		if !im.Header.Invalid() {
			if err := visit(addr+int64(at), im); err != nil {
				return err
			}
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
	bits []uint64
}

func newStarts(head, tail int64) Starts {
	return Starts{head, make([]uint64, (tail-head)/(8*64)+1)}
}

func (s Starts) add(addr int64) {
	if n := (addr - s.head) / 8; addr >= s.head {
		s.bits[n/64] |= 1 << (n % 64)
	}
}

// May reports whether a link may lead to addr, which is below the tail: to a record in memory
// that was added, or to the device, where it is checked when it is read.
func (s Starts) May(addr int64) bool {
	n := (addr - s.head) / 8
	return addr < s.head || addr%8 == 0 && s.bits[n/64]&(1<<(n%64)) != 0
}
