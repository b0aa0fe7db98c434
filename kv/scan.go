package kv

import (
	"sync/atomic"

	"github.com/redykv/redykv/hlog"
)

// scanner finds the records that readers see, a batch at a time. It walks the log
// up to the tail as it was when the scan began, and asks the index of each record
// whether it is the newest of its key below. So a key is found there, whatever
// writers append meanwhile, and the scan ends.
//
// Compaction moves records to the tail and the log's begin behind them. When that
// overtakes the scan, a record that was still to come may be behind the end: then
// the end moves to the tail, below which the copy is, and keys may be found again.
type scanner struct {
	s     *Session
	w     *hlog.Walker
	next  int64
	end   int64 // at or above the tail when the scan began
	safe  int64 // what was walked below was read-only
	to    int64 // end, or the present tail if that comes first
	done  bool
	batch traceBatch
}

// scanBatch is how many records a scan looks at together: so many reads of chains
// that lie on the device are under way at once.
const scanBatch = 256

// scanFrom is a scanner that goes on at a cursor.
func (s *Session) scanFrom(at Cursor) (*scanner, error) {
	sc := &scanner{s: s}
	var err error
	if sc.w, err = s.ownWalker(); err != nil {
		return nil, err
	}
	st := s.store
	if at == 0 {
		sc.next, sc.end = st.log.Begin(), st.log.SettleTo(0)
	} else {
		sc.next, sc.end = at.next(), at.end()
	}
	sc.followBegin()
	return sc, sc.resume()
}

// resume puts the walker at next. The middle of a page is looked for only where a
// scan of this process has stopped; else it is found from the page's start.
func (sc *scanner) resume() error {
	st := sc.s.store
	sc.safe, sc.to = st.log.SafeReadOnly(), st.log.SettleTo(sc.end)
	sc.done = sc.next >= sc.to
	if st.stops.known(sc.next) {
		return walkError(sc.w.Resume(sc.next, sc.to))
	}
	return walkError(sc.w.Walk(sc.next, sc.to))
}

// followBegin says whether the log's begin has overtaken the scan, and moves it
// behind.
func (sc *scanner) followBegin() bool {
	begin := sc.s.log.Begin()
	if begin <= sc.next {
		return false
	}
	sc.next, sc.end = begin, max(sc.end, sc.s.log.SettleTo(0))
	return true
}

// cursor is where the scan goes on.
func (sc *scanner) cursor() Cursor {
	if sc.done {
		return 0
	}
	sc.s.store.stops.add(sc.next)
	return newCursor(sc.next, sc.end)
}

// step looks at up to n records; goOn is what visit says.
func (sc *scanner) step(n int, visit func(Record) bool) (goOn bool, err error) {
	b := &sc.batch
	b.reset()
	for ended := sc.done; !ended && n > 0 && len(b.bytes) < traceBatchBytes; n-- {
		found, err := sc.w.Next()
		if err != nil {
			return false, walkError(err)
		}
		ended = !found
		if address, im := sc.w.Record(); found && !im.Header.Tombstone() {
			t := newTrace(address, sc.to)
			t.early = address >= sc.safe
			b.add(opNewest, t, im)
		}
	}
	if err := b.run(sc.s); err != nil {
		return false, err
	}
	for i := range b.ops {
		op := &b.ops[i]
		if op.Err == nil && !visit(Record{Address: b.traces[i].source, Key: op.Key, Value: op.Value, Expires: op.Expires}) {
			return false, nil
		}
	}
	// Of what was looked at below the log's begin, some may have been moved before
	// the index was asked.
	if sc.followBegin() {
		return true, sc.resume()
	}
	sc.next = sc.w.Position()
	sc.done = sc.next >= sc.to
	return true, nil
}

// stops remembers where scans have stopped, which is where records begin. Nobody
// can make it take another address for one; it may forget.
type stops [256]atomic.Int64

func (s *stops) at(address int64) *atomic.Int64 { return &s[hashWord(uint64(address))%uint64(len(s))] }
func (s *stops) add(address int64)              { s.at(address).Store(address) }
func (s *stops) known(address int64) bool       { return s.at(address).Load() == address }

// traceBatch is records whose chains are followed together. Tombstones are not
// among them. It owns copies of their bytes.
type traceBatch struct {
	ops    []Op
	traces []trace
	bytes  []byte
}

// traceBatchBytes ends a batch of large records.
const traceBatchBytes = 1 << 20

func (b *traceBatch) reset() { b.ops, b.traces, b.bytes = b.ops[:0], b.traces[:0], b.bytes[:0] }

// add takes a record in. Slices of earlier ones stay good when bytes grows: they
// keep the old memory.
func (b *traceBatch) add(kind OpKind, t trace, im hlog.Image) {
	at := len(b.bytes)
	b.bytes = append(append(b.bytes, im.Key...), im.Value...)
	value, end := at+len(im.Key), len(b.bytes)
	b.traces = append(b.traces, t)
	b.ops = append(b.ops, Op{
		Kind: kind, Expires: im.Expires,
		Key: b.bytes[at:value:value], Value: b.bytes[value:end:end],
	})
}

// run carries the batch out. Each Op has its own ErrNotFound; any other error is
// returned.
func (b *traceBatch) run(s *Session) error {
	s.traces = b.traces
	for i := range b.ops {
		b.ops[i].trace = uint32(i + 1)
	}
	return s.Do(b.ops)
}
