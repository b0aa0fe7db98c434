package ssdtier

import (
	"fmt"
	"log/slog"
	"slices"
)

// Options are the choices of a Device. The zero value is a good one.
type Options struct {
	// SegmentSize is the size in bytes of a segment file, a power of two from
	// 64 KiB to 1 TiB: the unit in which truncation gives space back. It is
	// fixed when the directory is made; opening it with another fails, and 0
	// takes what it was made with. Default 1 GiB, and on a file system of less than
	// 32 GiB the power of two of a 32nd to a 64th of it, from 16 MiB on.
	SegmentSize int64
	// Preallocate is how much space in bytes a segment takes ahead of the log at
	// most, so that writes find space that the file has: as much as the log is long,
	// if that is less. Start and Close give back what was not written. Negative:
	// none. Default 64 MiB.
	Preallocate int64
	// Recycle is how many segments that were truncated are kept for those to come: the
	// log is written over their bytes, which is faster than to space that was never
	// written, as files have it when they grow. Space that something else needs is
	// given back at once, and all of it by Close. Default 1; negative: none.
	Recycle int
	// Verify says which reads are compared with checksums. Default VerifyAll.
	Verify Verify
	// Engine is what carries reads and writes out. Default EngineAuto.
	Engine Engine
	// Workers is how many reads and writes the pool has under way on the disk at
	// once, for all queues together. Default 64.
	Workers int
	// Buffered goes through the page cache even where the file system would
	// allow not to.
	Buffered bool
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger
}

// Verify says which reads are compared with checksums.
type Verify string

// What can be verified.
const (
	// VerifyAll compares all that is read. A read takes the blocks of 4 KiB around what
	// was asked for.
	VerifyAll Verify = "all"
	// VerifyBlocks compares reads that have a whole block of 4 KiB in them, such as those
	// of recovery, compaction, scans and refills. Shorter ones, of records, take no more
	// than the sectors around what was asked for, as they are.
	VerifyBlocks Verify = "blocks"
)

// Verifies are all that there are.
var Verifies = []Verify{VerifyAll, VerifyBlocks}

// Engine is what carries reads and writes out.
type Engine string

// The engines.
const (
	// EngineAuto is EngineUring where that works, and EnginePool elsewhere.
	EngineAuto Engine = "auto"
	// EngineUring is Linux' io_uring, a ring for each queue. Where it is missing or
	// forbidden, opening fails. The pool is there, too, for what is not plain: reads
	// and writes that lie in two segments, make a new one, or fail.
	EngineUring Engine = "uring"
	// EnginePool is a pool of goroutines that read and write at positions.
	EnginePool Engine = "pool"
)

// Engines are all that there are.
var Engines = []Engine{EngineAuto, EngineUring, EnginePool}

// Defaults and limits of Options.
const (
	DefaultSegmentSize = 1 << 30
	DefaultPreallocate = 64 << 20
	DefaultRecycle     = 1
	DefaultWorkers     = 64

	// A small file system has segments of a 32nd of it at most, so that those that wait
	// until all in them is dead are a small part of it.
	segmentShare          = 32
	smallestSegmentChosen = 16 << 20

	minSegmentSize = 64 << 10
	maxSegmentSize = 1 << 40
	maxWorkers     = 1 << 12
)

// ensureDefaults fills in what is unset, but for SegmentSize, which the
// directory may know, and checks the rest.
func (o *Options) ensureDefaults() error {
	if o.Engine == "" {
		o.Engine = EngineAuto
	}
	if o.Preallocate == 0 {
		o.Preallocate = DefaultPreallocate
	}
	if o.Recycle == 0 {
		o.Recycle = DefaultRecycle
	}
	if o.Verify == "" {
		o.Verify = VerifyAll
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.SegmentSize != 0 {
		if err := checkSegmentSize(o.SegmentSize); err != nil {
			return err
		}
	}
	if !slices.Contains(Engines, o.Engine) {
		return fmt.Errorf("ssdtier: unknown engine %q, want one of %v", o.Engine, Engines)
	}
	if !slices.Contains(Verifies, o.Verify) {
		return fmt.Errorf("ssdtier: unknown verification %q, want one of %v", o.Verify, Verifies)
	}
	if o.Workers < 1 || o.Workers > maxWorkers {
		return fmt.Errorf("ssdtier: %d workers, want 1 to %d", o.Workers, maxWorkers)
	}
	return nil
}

// segmentSizeFor is the size of segments on a file system of that size; 0: it is not
// known.
func segmentSizeFor(total int64) int64 {
	size := int64(DefaultSegmentSize)
	for total > 0 && size > total/segmentShare && size > smallestSegmentChosen {
		size /= 2
	}
	return size
}

func checkSegmentSize(n int64) error {
	if n < minSegmentSize || n > maxSegmentSize || n&(n-1) != 0 {
		return fmt.Errorf("ssdtier: segment size %d, want a power of two from %d to %d",
			n, minSegmentSize, int64(maxSegmentSize))
	}
	return nil
}
