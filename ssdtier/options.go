package ssdtier

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
)

// Options are the choices of a Device. The zero value is a good one.
type Options struct {
	// SegmentSize is the size in bytes of a segment file, a power of two from 64 KiB to
	// 1 TiB: the unit in which truncation releases space. It is fixed when the directory
	// is created; opening it with another size fails, and 0 means the size it has.
	// Default 1 GiB; on a file system of less than 32 GiB the power of two that is a 32nd
	// to a 64th of it, at least 16 MiB.
	SegmentSize int64
	// Preallocate is the largest space in bytes that a segment allocates ahead of the log,
	// or the length of the log if that is less. Start and Close release what was not
	// written. Negative: none. Default 64 MiB.
	Preallocate int64
	// Recycle is the number of truncated segments whose files are reused for new segments:
	// overwriting them is faster than writing to newly allocated space. They are removed
	// when the file system is full, and by Close. Default 1; negative: none.
	Recycle int
	// Verify selects the reads that are compared with checksums. Default VerifyAll.
	Verify Verify
	// Engine carries out reads and writes. Default EngineAuto.
	Engine Engine
	// Workers is the largest number of reads and writes that the pool, which all queues
	// share, carries out at once. Default 64.
	Workers int
	// Buffered uses the page cache even if the file system allows direct I/O.
	Buffered bool
	// Logger receives messages for an operator. Default: slog.Default().
	Logger *slog.Logger
}

// Verify selects the reads that are compared with checksums.
type Verify string

// Values of Verify.
const (
	// VerifyAll compares every read. A read takes the blocks of 4 KiB around its range.
	VerifyAll Verify = "all"
	// VerifyBlocks compares reads that contain a whole block of 4 KiB, such as those of
	// recovery, compaction, scans and refills. A shorter read, of records, takes only the
	// sectors around its range, and is not compared.
	VerifyBlocks Verify = "blocks"
)

// Verifies are all values of Verify.
var Verifies = []Verify{VerifyAll, VerifyBlocks}

// Engine carries out reads and writes.
type Engine string

// The engines.
const (
	// EngineAuto is EngineUring if io_uring works, and otherwise EnginePool.
	EngineAuto Engine = "auto"
	// EngineUring is Linux's io_uring, a ring for each queue. Opening fails if io_uring
	// is missing or forbidden. The pool carries out what is not plain: operations on two
	// segments, writes that create a segment, and operations that fail on the ring.
	EngineUring Engine = "uring"
	// EnginePool is a pool of goroutines that read and write at positions.
	EnginePool Engine = "pool"
)

// Engines are all values of Engine.
var Engines = []Engine{EngineAuto, EngineUring, EnginePool}

// Defaults and limits of Options.
const (
	DefaultSegmentSize = 1 << 30
	DefaultPreallocate = 64 << 20
	DefaultRecycle     = 1
	DefaultWorkers     = 64

	// On a small file system a segment is at most a 32nd of it, so that partly used segments
	// waste little space.
	segmentShare          = 32
	smallestSegmentChosen = 16 << 20

	minSegmentSize = 64 << 10
	maxSegmentSize = 1 << 40
	maxWorkers     = 1 << 12
)

// ensureDefaults sets the defaults, except of SegmentSize, which the directory may
// determine, and checks the options.
func (o *Options) ensureDefaults() error {
	o.Engine = cmp.Or(o.Engine, EngineAuto)
	o.Preallocate = cmp.Or(o.Preallocate, DefaultPreallocate)
	o.Recycle = cmp.Or(o.Recycle, DefaultRecycle)
	o.Verify = cmp.Or(o.Verify, VerifyAll)
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	o.Logger = cmp.Or(o.Logger, slog.Default())
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

// segmentSizeFor is the default segment size on a file system of total bytes, 0 if unknown.
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
