package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/kv/internal/phase"
)

// CompactMethod is how compaction distinguishes live records from dead ones.
type CompactMethod uint8

const (
	// CompactAuto is CompactByScan if the log above the region is mostly in memory, or is
	// not longer than the region, else CompactByLookup.
	CompactAuto CompactMethod = iota
	// CompactByLookup follows the chain of each record from the index. A record that was
	// replaced by one on the device costs a read; a live record costs none.
	CompactByLookup
	// CompactByScan keeps a table of the region's keys, and reads the log above the region
	// for newer records of them.
	CompactByScan
)

// String returns the method's name.
func (m CompactMethod) String() string {
	if names := [...]string{"auto", "lookup", "scan"}; int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// CompactOptions select the part of the log that is compacted, and the method. The zero value
// compacts everything that is read-only.
type CompactOptions struct {
	// Until is the address at which the region ends. If it is 0, Bytes is the region's
	// length. The region ends at a page, and not above the read-only address.
	Until, Bytes int64
	// Method distinguishes live records from dead ones.
	Method CompactMethod
	// Share limits compaction to a share of one processor, up to 1. 0: no limit.
	Share float64
	// Memory limits the table of CompactByScan, in bytes. Default 64 MiB.
	Memory int64
}

// DefaultCompactMemory is the default of CompactOptions.Memory.
const DefaultCompactMemory = 64 << 20

func (o *CompactOptions) ensureDefaults() error {
	o.Memory = cmp.Or(o.Memory, DefaultCompactMemory)
	switch {
	case o.Until < 0 || o.Bytes < 0 || o.Memory < 0:
		return fmt.Errorf("kv: compaction until %d, of %d bytes, in %d bytes of memory: want none negative", o.Until, o.Bytes, o.Memory)
	case o.Until != 0 && o.Bytes != 0:
		return fmt.Errorf("kv: compaction until %d and of %d bytes: set only one of Until and Bytes", o.Until, o.Bytes)
	case o.Method > CompactByScan:
		return fmt.Errorf("kv: compaction by unknown %v", o.Method)
	case !(o.Share >= 0 && o.Share <= 1):
		return fmt.Errorf("kv: compaction with a share of %g: want 0 to 1", o.Share)
	}
	return nil
}

// CompactionInfo is the result of a compaction.
type CompactionInfo struct {
	// From and Until are the log's begin address before and after.
	From, Until int64
	// Records is the number of records between them, Copied the number of those that were
	// copied to the tail.
	Records, Copied          uint64
	RecordBytes, CopiedBytes int64
	// Orphans is the number of inner records that Options.Orphans dropped, old versions included.
	Orphans  uint64
	Duration time.Duration
}

// Reclaimed returns the number of bytes by which the compaction shortened the log.
func (i CompactionInfo) Reclaimed() int64 { return i.Until - i.From - i.CopiedBytes }

func (m *CompactionMetrics) add(i *CompactionInfo) {
	m.Runs++
	m.ReadRecords += i.Records
	m.CopiedRecords += i.Copied
	m.ReadBytes += i.RecordBytes
	m.CopiedBytes += i.CopiedBytes
	m.ReclaimedBytes += i.Until - i.From
}

// portion is the number of bytes that are compacted between two truncations. A truncation
// takes a commit.
const portion = 64 << 20

// Compact shortens the log from its beginning: it copies live records to the tail, moves the
// begin address, and frees the space below it on the device. Operations go on meanwhile and
// see no change. If ctx ends, or after another error, the portions before it are done.
// Compactions run one at a time.
//
// Expired records, tombstones and orphans (Options.Orphans) are not copied: all older records of their keys are dropped,
// too.
func (st *Store) Compact(ctx context.Context, opts CompactOptions) (CompactionInfo, error) {
	if err := opts.ensureDefaults(); err != nil {
		return CompactionInfo{}, err
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
	st.count(func(m *Metrics) { m.Compaction.add(&c.info) })
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
	orphans
}

// until returns the end of the region according to the options. It is the start of a page,
// since walks begin there.
func (c *compactor) until() int64 {
	until := c.st.log.SafeReadOnly()
	switch {
	case c.opts.Until > 0:
		until = min(until, c.opts.Until)
	case c.opts.Bytes > 0:
		until = c.info.From + min(until-c.info.From, c.opts.Bytes)
	}
	return c.page(until)
}

// page returns the start of the page of an address.
func (c *compactor) page(address int64) int64 { return address &^ int64(c.st.log.PageSize()-1) }

func (c *compactor) run(ctx context.Context) error {
	until := c.until()
	for c.info.Until < until {
		from := c.info.Until
		to := min(until, max(c.page(from+portion), c.page(from)+int64(c.st.log.PageSize())))
		var err error
		if m := c.opts.Method; m == CompactByScan || m == CompactAuto && c.st.log.Head()-to <= to-from {
			to, err = c.scan(ctx, from, to)
		} else {
			err = c.lookup(ctx, from, to)
		}
		if err == nil {
			// A session that read the index before the last copy must leave its epoch before
			// begin moves: it would find neither the record nor the copy.
			c.st.log.Settle()
			err = c.st.truncate(ctx, to) // every live record below has a copy by now
		}
		if err != nil {
			return err
		}
		c.info.Until = to
	}
	return nil
}

// lookup copies the live records of a part of the region, by lookup.
func (c *compactor) lookup(ctx context.Context, from, to int64) error {
	return c.copy(ctx, from, to, func(address int64, _ hlog.Image) (trace, bool) {
		return newTrace(address, hlog.MaxAddress), true // follows the whole chain
	})
}

// copy copies records of a part of the region to the tail: those for which choose returns a
// trace and which are still the newest of their keys.
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
		return c.move(ctx)
	})
	if err != nil {
		return err
	}
	return c.move(ctx)
}

// move runs the batch.
func (c *compactor) move(ctx context.Context) error {
	dropped, err := c.batch.dropOrphans(ctx, c.s, &c.orphans)
	if err != nil {
		return err
	}
	c.info.Orphans += uint64(dropped)
	if err := c.batch.run(ctx, c.s); err != nil {
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

// sizeOf returns the size of a copy of a record in the log.
func (s *Session) sizeOf(im hlog.Image) int {
	return s.layout.Size(len(im.Key), len(im.Value), im.Header.Expires())
}

// walk visits the records between two addresses, at the pace of the options.
func (c *compactor) walk(ctx context.Context, from, to int64, visit func(int64, hlog.Image) error) error {
	var failed error
	n := 0
	err := c.s.walk(ctx, from, to, func(address int64, im hlog.Image) bool {
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

// paceQuantum is the minimum time of work between two rests. Timers are too coarse for shorter
// ones.
const paceQuantum = 5 * time.Millisecond

// pace limits work to a share of the time.
type pace struct {
	share float64
	since time.Time // the end of the last rest
}

// rest pauses as long as the work since the last rest requires.
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

// keyDigest represents a key in a large table: 128 bits, from two hashes with random seeds, so
// that different keys have different digests.
type keyDigest [2]uint64

// keyTable holds the address of the newest record of each key of a part of the log.
type keyTable struct {
	seeds   [2]maphash.Seed
	newest  map[keyDigest]int64
	maximum int
}

// errTableFull ends the walk that fills the table.
var errTableFull = errors.New("kv: key table full")

// keyTableEntry is the approximate size of an entry in bytes.
const keyTableEntry = 64

func (t *keyTable) digest(key []byte) keyDigest {
	return keyDigest{maphash.Bytes(t.seeds[0], key), maphash.Bytes(t.seeds[1], key)}
}

// scan copies the live records of a part of the region, by scan. It puts the newest record of
// each key into a table, removes the keys that have another record in the log above, and
// copies the rest. If the table gets full, the part ends early, at the page until.
func (c *compactor) scan(ctx context.Context, from, to int64) (until int64, err error) {
	table := &keyTable{
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		newest:  make(map[keyDigest]int64),
		maximum: int(c.opts.Memory / keyTableEntry),
	}
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
	if until < to { // the table may have records of that page
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
		// The key has no other record below the tail, so its chain is followed down to there.
		return trace{source: address, lowest: tail, below: hlog.MaxAddress}, true
	})
}
