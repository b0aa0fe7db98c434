package blob

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Errors that a caller can act on.
var (
	// ErrForeign means that bucket and local device do not belong to the same store.
	ErrForeign = errors.New("blob: bucket and device belong to different stores")
	// ErrTaken means that another machine has taken the store in the bucket.
	ErrTaken = errors.New("blob: another machine has taken the store over")
	// ErrFormat means that the bucket holds data in an unknown format.
	ErrFormat = errors.New("blob: unknown format")
	// ErrUnconditional means that the bucket ignores the condition of a write that the blob
	// must not exist: see Options.OnlyWriter.
	ErrUnconditional = errors.New("blob: the bucket ignores conditional writes (If-None-Match), so that two machines could write the same store without noticing")
)

// Options are the choices of a Device. The zero value is a good one.
type Options struct {
	// SegmentSize is the unit in bytes in which the bucket holds the log, a power of two
	// from 64 KiB to 1 GiB. The first upload fixes it; 0 means the size that the bucket
	// has. Default 8 MiB.
	SegmentSize int64
	// Every is the least time from one upload to the next: what a store may lose with its
	// machine, and how often the log's last segment is uploaded. Default 5 s.
	Every time.Duration
	// Readers is the number of concurrent reads of the bucket, for all queues together.
	// Default 32.
	Readers int
	// Patience is how long a request to the bucket is retried before it fails. An upload
	// that fails is started again. Default 30 s.
	Patience time.Duration
	// Linger is how long Close waits until everything is in the bucket. Default 1 min;
	// negative: Close does not wait.
	Linger time.Duration
	// OnlyWriter says that no other machine uses the bucket for this store at the same time.
	// Then the bucket need not support conditional writes, by which machines notice each
	// other, and two machines may damage the store in the bucket. Default: Open returns
	// ErrUnconditional if the bucket ignores the condition.
	OnlyWriter bool
	// Logger receives messages for an operator. Default: slog.Default().
	Logger *slog.Logger
}

// Defaults and limits of Options.
const (
	DefaultSegmentSize = 8 << 20
	DefaultEvery       = 5 * time.Second
	DefaultReaders     = 32
	DefaultPatience    = 30 * time.Second
	DefaultLinger      = time.Minute

	minSegmentSize = 64 << 10
	maxSegmentSize = 1 << 30
	maxReaders     = 1 << 12
)

// ensureDefaults sets the defaults, except of SegmentSize, which the bucket may determine,
// and checks the options.
func (o *Options) ensureDefaults() error {
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.Readers = cmp.Or(o.Readers, DefaultReaders)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.Linger = cmp.Or(o.Linger, DefaultLinger)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.SegmentSize != 0 {
		if err := checkSegmentSize(o.SegmentSize); err != nil {
			return err
		}
	}
	if o.Every < 0 || o.Patience < 0 {
		return fmt.Errorf("blob: Every is %v and Patience %v, want positive durations", o.Every, o.Patience)
	}
	if o.Readers < 1 || o.Readers > maxReaders {
		return fmt.Errorf("blob: %d readers, want 1 to %d", o.Readers, maxReaders)
	}
	return nil
}

func checkSegmentSize(n int64) error {
	if n < minSegmentSize || n > maxSegmentSize || n&(n-1) != 0 {
		return fmt.Errorf("blob: segment size %d, want a power of two from %d to %d", n, minSegmentSize, int64(maxSegmentSize))
	}
	return nil
}
