package kv

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/kv/internal/phase"
)

// CompactMethod is how compaction finds out which records are live.
type CompactMethod uint8

const (
	// CompactAuto chooses: ByScan where the log behind the region is mostly in
	// memory, or not longer than the region; else ByLookup.
	CompactAuto CompactMethod = iota
	// CompactByLookup follows the chain of each record from the index. A record that
	// was replaced by one on the device costs a read there; a live one does not.
	CompactByLookup
	// CompactByScan keeps a table of the region's keys and reads the log behind it,
	// in order, for newer records of them.
	CompactByScan
)

// String is the method's name.
func (m CompactMethod) String() string {
	switch m {
	case CompactAuto:
		return "auto"
	case CompactByLookup:
		return "lookup"
	case CompactByScan:
		return "scan"
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// CompactOptions say how much of the log is compacted, and how. The zero value is
// all that is read-only.
type CompactOptions struct {
	// Until is the address at which the region ends; Bytes, where Until is 0, its
	// length. It is cut to whole pages, and ends with what is read-only.
	Until, Bytes int64
	// Method is how live records are told from dead ones.
	Method CompactMethod
	// Share is the share of a processor that it may use, up to 1; 0: all it can get.
	Share float64
	// Memory bounds the bytes of CompactByScan's table. Default 64 MiB.
	Memory int64
}

// DefaultCompactMemory is the default of CompactOptions.Memory.
const DefaultCompactMemory = 64 << 20

func (o *CompactOptions) ensureDefaults() error {
	if o.Memory == 0 {
		o.Memory = DefaultCompactMemory
	}
	switch {
	case o.Until < 0 || o.Bytes < 0 || o.Memory < 0:
		return fmt.Errorf("kv: compaction until %d, of %d bytes, in %d bytes of memory: want none negative", o.Until, o.Bytes, o.Memory)
	case o.Until != 0 && o.Bytes != 0:
		return fmt.Errorf("kv: compaction until %d or of %d bytes: give one", o.Until, o.Bytes)
	case o.Method > CompactByScan:
		return fmt.Errorf("kv: compaction by %v", o.Method)
	case !(o.Share >= 0 && o.Share <= 1):
		return fmt.Errorf("kv: compaction with a share of %g: want 0 to 1", o.Share)
	}
	return nil
}

// CompactionInfo is what a compaction did.
type CompactionInfo struct {
	// From and Until are the log's begin before and after.
	From, Until int64
	// Records in that region, and their bytes; those copied to the tail.
	Records, Copied          uint64
	RecordBytes, CopiedBytes int64
	Duration                 time.Duration
}

// Reclaimed is how many bytes shorter the log is for it.
func (i CompactionInfo) Reclaimed() int64 { return i.Until - i.From - i.CopiedBytes }

// compactionCounts are the sums over all compactions.
type compactionCounts struct {
	runs, records, copied               atomic.Uint64
	recordBytes, copiedBytes, reclaimed atomic.Int64
}

func (c *compactionCounts) addTo(m *Metrics) {
	m.Compaction.Runs, m.Compaction.ReadRecords, m.Compaction.CopiedRecords = c.runs.Load(), c.records.Load(), c.copied.Load()
	m.Compaction.ReadBytes, m.Compaction.CopiedBytes = c.recordBytes.Load(), c.copiedBytes.Load()
	m.Compaction.ReclaimedBytes = c.reclaimed.Load()
}

// portion is how much of a region is compacted before its space is given back:
// that takes a commit.
const portion = 64 << 20

// Compact shortens the log from its beginning: it copies to the tail what readers
// still see there, gives the rest back to the device, and moves the log's begin.
// Operations go on meanwhile; nothing that they see changes. If ctx ends, or with
// an error, the portions before are done and the store is as good as before.
//
// What has expired, and what deletes a key, is not copied: everything older of the
// key goes too.
func (st *Store) Compact(ctx context.Context, opts CompactOptions) (CompactionInfo, error) {
	if err := opts.ensureDefaults(); err != nil {
		return CompactionInfo{}, err
	}
	if err := st.mayWait(); err != nil {
		return CompactionInfo{}, fmt.Errorf("kv: compacting: %w", err)
	}
	if err := st.begin(ctx, phase.Compact, "compacting"); err != nil {
		return CompactionInfo{}, err
	}
	defer st.end(phase.Compact)
	start := time.Now()
	c := &compactor{st: st, opts: opts, pace: pace{share: opts.Share}}
	c.info.From = st.log.Begin()
	c.info.Until = c.info.From
	st.opts.Events.CompactionBegin(CompactionBeginInfo{c.info.From, max(c.until(), c.info.From), opts.Method})
	err := st.withAny(func(s *Session) error {
		if s.unusable != nil {
			return s.unusable
		}
		c.s = s
		return c.run(ctx)
	})
	err = stoppedBy(ctx, err)
	c.info.Duration = time.Since(start)
	c.count()
	st.opts.Events.CompactionEnd(CompactionEndInfo{c.info, err})
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("kv: compacting from %d: %w", c.info.Until, err)
	}
	return c.info, err
}

// compactor is one compaction.
type compactor struct {
	st    *Store
	s     *Session
	opts  CompactOptions
	info  CompactionInfo
	pace  pace
	batch traceBatch
}

// count adds what was done to the store's sums.
func (c *compactor) count() {
	sums, i := &c.st.compaction, &c.info
	sums.runs.Add(1)
	sums.records.Add(i.Records)
	sums.copied.Add(i.Copied)
	sums.recordBytes.Add(i.RecordBytes)
	sums.copiedBytes.Add(i.CopiedBytes)
	sums.reclaimed.Add(i.Until - i.From)
}

// until is where the region ends that the options ask for: at a page, since
// truncation, and walks from there, begin with one.
func (c *compactor) until() int64 {
	until := c.st.log.SafeReadOnly()
	switch {
	case c.opts.Until > 0:
		until = min(until, c.opts.Until)
	case c.opts.Bytes > 0:
		until = min(until, c.info.From+c.opts.Bytes)
	}
	return c.page(until)
}

// page is where the page of an address begins.
func (c *compactor) page(address int64) int64 { return address &^ int64(c.st.log.PageSize()-1) }

func (c *compactor) run(ctx context.Context) error {
	until := c.until()
	for c.info.Until < until {
		from := c.info.Until
		to := min(until, max(c.page(from+portion), c.page(from)+int64(c.st.log.PageSize())))
		var err error
		if c.byScan(from, to) {
			to, err = c.scan(ctx, from, to)
		} else {
			err = c.lookup(ctx, from, to)
		}
		if err == nil {
			err = c.release(ctx, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byScan says whether a part of the region is compacted by scan.
func (c *compactor) byScan(from, to int64) bool {
	if c.opts.Method == CompactAuto {
		return c.st.log.Head()-to <= to-from
	}
	return c.opts.Method == CompactByScan
}

// lookup copies what is live in a part of the region, by lookup.
func (c *compactor) lookup(ctx context.Context, from, to int64) error {
	return c.copy(ctx, from, to, newMove)
}

// newMove is the trace of a record of which nothing is known.
func newMove(address int64, _ hlog.Image) (trace, bool) {
	return newTrace(address, hlog.MaxAddress), true
}

// copy goes through a part of the region and copies to the tail the records that
// choose has a trace for and that are still the newest of their keys.
func (c *compactor) copy(ctx context.Context, from, to int64, choose func(int64, hlog.Image) (trace, bool)) error {
	c.batch.reset()
	err := c.walk(ctx, from, to, func(address int64, im hlog.Image) error {
		c.info.Records++
		c.info.RecordBytes += int64(c.s.sizeOf(im))
		if t, ok := choose(address, im); ok && !im.Header.Tombstone() && !c.s.expired(im.Expires) {
			c.batch.add(opMove, t, im)
		}
		if len(c.batch.ops) < scanBatch && len(c.batch.bytes) < traceBatchBytes {
			return nil
		}
		return c.move()
	})
	if err != nil {
		return err
	}
	return c.move()
}

// move carries a batch out.
func (c *compactor) move() error {
	if err := c.batch.run(c.s); err != nil {
		return err
	}
	for i := range c.batch.ops {
		if op := &c.batch.ops[i]; op.Err == nil {
			c.info.Copied++
			c.info.CopiedBytes += int64(c.s.layout.Size(len(op.Key), len(op.Value), op.Expires != 0))
		}
	}
	c.batch.reset()
	return nil
}

// sizeOf is what a copy of a record takes in the log.
func (s *Session) sizeOf(im hlog.Image) int {
	return s.layout.Size(len(im.Key), len(im.Value), im.Header.Expires())
}

// walk visits the records between two addresses, at the pace that the options
// allow.
func (c *compactor) walk(ctx context.Context, from, to int64, visit func(int64, hlog.Image) error) error {
	var failed error
	n := 0
	err := c.s.walk(from, to, func(address int64, im hlog.Image) bool {
		if n++; n%scanBatch == 0 {
			failed = c.pace.rest(ctx)
		}
		if failed == nil {
			failed = visit(address, im)
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// release makes the log begin at to, where everything live below has a copy now,
// and gives the space back.
func (c *compactor) release(ctx context.Context, to int64) error {
	// Who looked at the index before the last copy was made must not look at the
	// begin after it has moved: that would find no record at all.
	c.st.log.Settle()
	if err := c.st.truncate(ctx, to); err != nil {
		return err
	}
	c.info.Until = to
	return nil
}

// paceQuantum is how long work goes on at least between two rests, for which timers
// are too coarse otherwise.
const paceQuantum = 5 * time.Millisecond

// pace keeps work to a share of the time.
type pace struct {
	share float64
	since time.Time // work began
}

// rest pauses for as long as the work since the last rest makes necessary.
func (p *pace) rest(ctx context.Context) error {
	if p.share == 0 || p.share == 1 {
		return ctx.Err()
	}
	if !p.since.IsZero() {
		worked := time.Since(p.since)
		if worked < paceQuantum {
			return ctx.Err()
		}
		clock.Sleep(ctx, time.Duration(float64(worked)*(1-p.share)/p.share))
	}
	p.since = time.Now()
	return ctx.Err()
}

// keyDigest stands for a key in a table of very many: 128 bits, by hashes whose
// seeds nobody knows, so that no two keys have the same.
type keyDigest [2]uint64

// keyTable is the newest record of each key in a part of the log.
type keyTable struct {
	seeds   [2]maphash.Seed
	newest  map[keyDigest]int64
	maximum int
}

// errTableFull ends a walk whose keys are to be put into the table.
var errTableFull = errors.New("kv: key table full")

// keyTableEntry is about what an entry takes in bytes.
const keyTableEntry = 64

func newKeyTable(memory int64) *keyTable {
	return &keyTable{
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		newest:  make(map[keyDigest]int64),
		maximum: int(memory / keyTableEntry),
	}
}

func (t *keyTable) digest(key []byte) keyDigest {
	return keyDigest{maphash.Bytes(t.seeds[0], key), maphash.Bytes(t.seeds[1], key)}
}

// scan copies what is live in a part of the region, by scan: first it notes the
// newest record there of each key, then it crosses out those of which the log
// behind has another, then it copies the rest. If the table gets full, the part
// ends early, at the page that until is.
func (c *compactor) scan(ctx context.Context, from, to int64) (until int64, err error) {
	table := newKeyTable(c.opts.Memory)
	until = to
	err = c.walk(ctx, from, to, func(address int64, im hlog.Image) error {
		if page := c.page(address); page >= c.page(from)+int64(c.st.log.PageSize()) && len(table.newest) >= table.maximum {
			until = page
			return errTableFull
		}
		table.newest[table.digest(im.Key)] = address
		return nil
	})
	if err != nil && !errors.Is(err, errTableFull) {
		return until, err
	}
	if until < to { // a part of that page may be in the table
		maps.DeleteFunc(table.newest, func(_ keyDigest, address int64) bool { return address >= until })
	}
	tail := c.st.log.SettleTo(0)
	err = c.walk(ctx, until, tail, func(_ int64, im hlog.Image) error {
		delete(table.newest, table.digest(im.Key))
		return nil
	})
	if err != nil {
		return until, err
	}
	return until, c.copy(ctx, from, until, func(address int64, im hlog.Image) (trace, bool) {
		if table.newest[table.digest(im.Key)] != address {
			return trace{}, false
		}
		// No other record of the key below the tail: chains are followed down to there.
		return trace{source: address, floor: tail, below: hlog.MaxAddress}, true
	})
}
