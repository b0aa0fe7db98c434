package hlog

import "io"

// linkWindow is the size of the part at the end of a log for which Inspect stores the
// addresses of records, at one byte of memory per 64.
const linkWindow = 64 << 30

// Inspect checks a log that is not open: the bytes between two addresses in src, oldest first.
// It calls visit for every record, except those that never became reachable; the image is
// valid during the call. It calls problem for bytes that cannot be records or cannot be read,
// and continues with the next page. It checks that each link leads to a lower address and,
// within linkWindow, to a record.
func Inspect(src io.ReaderAt, layout Layout, pageSize int, begin, tail int64,
	visit func(addr int64, im Image), problem func(addr, until int64, err error)) {
	l := &Log{layout: layout, pageSize: pageSize}
	starts := newStarts(max(begin, tail-linkWindow), tail, pageSize)
	page := make([]byte, pageSize)
	for at := begin; at < tail; {
		end := min(at+l.rest(at), tail)
		good := at // below it are records
		_, err := src.ReadAt(page[:end-at], at)
		if err == nil {
			err = l.walkPage(page[:end-at], at, func(addr int64, im Image) error {
				if err := starts.check(addr, im.Header); err != nil {
					return err
				}
				starts.add(addr)
				if !im.Header.Invalid() {
					good = addr
					visit(addr, im)
				}
				return nil
			})
		}
		if err != nil {
			problem(at, end, err)
			for ; good < end; good += 8 { // links to there are not reported again
				starts.add(good)
			}
		}
		at = end
	}
}
