package hlog

import (
	"io"
	"math/bits"
)

// linkWindow is how much of a log's end Inspect knows the records' addresses of,
// at one byte of memory for 64.
const linkWindow = 64 << 30

// Inspect looks at a log that nobody has open: at the bytes between two addresses
// in src, oldest first. Every record that can be one is visited, but for those that
// never became reachable, valid during the call. What cannot be is a problem, from
// an address on, and so is what cannot be read; then it goes on with the next page.
// Of a link it sees that it leads back and, if that is not far, to a record.
func Inspect(src io.ReaderAt, layout Layout, pageSize int, begin, tail int64,
	visit func(addr int64, im Image), problem func(addr, until int64, err error)) {
	l := &Log{layout: layout, pageSize: pageSize, pageBits: uint(bits.TrailingZeros(uint(pageSize)))}
	starts := newStarts(max(begin, tail-linkWindow), tail)
	page := make([]byte, pageSize)
	for at := begin; at < tail; {
		end := min(at+l.rest(at), tail)
		good := at // up to here there are records
		_, err := src.ReadAt(page[:end-at], at)
		if err == nil {
			err = l.walk(page[:end-at], at, starts, func(addr int64, im Image) error {
				good = addr
				visit(addr, im)
				return nil
			})
		}
		if err != nil {
			problem(at, end, err)
			for ; good < end; good += 8 { // links to there are nobody's fault
				starts.add(good)
			}
		}
		at = end
	}
}
