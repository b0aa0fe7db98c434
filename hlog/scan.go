package hlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/mem"
)

// ErrCorrupt says that the log holds bytes that no record can be.
var ErrCorrupt = errors.New("hlog: corrupt log")

// Scan calls visit for every record from Begin to tail, oldest first, records
// that never became reachable left out. It is for recovery: nobody else may use
// the log meanwhile. The image is valid during the call.
func (l *Log) Scan(tail int64, visit func(addr int64, im Image) error) (err error) {
	queue, err := l.dev.NewQueue(1)
	if err != nil {
		return fmt.Errorf("hlog: scan: %w", err)
	}
	defer closing(queue, &err)
	buffer, err := mem.Alloc(l.pageSize)
	if err != nil {
		return fmt.Errorf("hlog: scan: %w", err)
	}
	defer func() { err = errors.Join(err, mem.Free(buffer)) }()
	for at := l.Begin(); at < tail; {
		end := min((at>>l.pageBits+1)<<l.pageBits, tail)
		page := buffer[:end-at]
		if at >= l.Head() {
			page = l.frame(at, int(end-at))
		} else if err := readSync(queue, page, at); err != nil {
			return fmt.Errorf("hlog: scan: %w", err)
		}
		if err := l.walk(page, at, visit); err != nil {
			return err
		}
		at = end
	}
	return nil
}

func closing(c io.Closer, err *error) { *err = errors.Join(*err, c.Close()) }

// walk visits the records of one page, or of its used part, which lies at addr.
func (l *Log) walk(page []byte, addr int64, visit func(int64, Image) error) error {
	for at := 0; len(page)-at >= headerSize; {
		if binary.LittleEndian.Uint64(page[at:]) == 0 {
			return nil // the unused end
		}
		im, need, err := l.layout.Decode(page[at:])
		if err == nil && need > len(page)-at {
			err = fmt.Errorf("record of %d bytes reaches over the page's end", need)
		}
		if err != nil {
			return fmt.Errorf("%w: at address %d: %w", ErrCorrupt, addr+int64(at), err)
		}
		if !im.Header.Invalid() {
			if err := visit(addr+int64(at), im); err != nil {
				return err
			}
		}
		at += need
	}
	return nil
}
