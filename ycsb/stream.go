package ycsb

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// StreamSpec describes a [Stream].
type StreamSpec struct {
	// First and Records are the records that operations ask for, which have been
	// inserted.
	First, Records int64
	ValueSize      int // bytes, the same for all
	Depth          int // pending operations; 1: Next waits for each
	Distribution   Distribution
	Mix            Mix
	// Inserts is the record that the next insert of any stream adds.
	Inserts *atomic.Int64
	// Seed selects the sequence of operations and record numbers.
	Seed int64
}

// Stream is one thread of this package's driver for callers with their own loop: operations
// begin one at a time, and many are pending. It belongs to one goroutine.
type Stream struct {
	reader  *reader
	unasked int // operations begun since the last poll
}

// NewStream returns a stream with a session on store, which the caller closes.
func NewStream(store *kv.Store, spec StreamSpec) (*Stream, error) {
	if spec.ValueSize < 1 || spec.ValueSize > MaxValueSize || spec.Depth < 1 || spec.Depth > MaxDepth || spec.First < 0 {
		return nil, fmt.Errorf("ycsb: stream from record %d on, values of %d bytes, %d under way", spec.First, spec.ValueSize, spec.Depth)
	}
	numbers, err := spec.Distribution.Generator(spec.Records, spec.Seed)
	if err != nil {
		return nil, err
	}
	r := newReader(spec.ValueSize, spec.Depth, numbers)
	if r.mixed, err = newMixed(spec.Mix, spec.Seed, spec.First, spec.Inserts, r); err != nil {
		return nil, fmt.Errorf("ycsb: stream: %w", err)
	}
	r.session = store.NewSession()
	return &Stream{reader: r}, nil
}

// Next begins an operation, and returns when there is room for another one. The error is the
// session's; failed operations are counted.
func (s *Stream) Next(ctx context.Context) error {
	r := s.reader
	for {
		n, err := r.submit(1)
		if err != nil {
			return fmt.Errorf("ycsb: %w", err)
		}
		if n > 0 {
			break
		}
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	if s.unasked++; s.unasked >= burst {
		s.unasked = 0
		r.poll()
	}
	for len(r.free) == 0 {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await returns when an operation has completed, or ctx has ended.
func (s *Stream) await(ctx context.Context) error {
	r := s.reader
	for s.unasked = 0; r.poll() == 0; {
		if err := r.session.Wait(ctx); err != nil {
			return fmt.Errorf("ycsb: %w", err)
		}
	}
	return nil
}

// Take returns the counts since the last call.
func (s *Stream) Take() Counts {
	counts := s.reader.mixed.counts
	s.reader.mixed.counts = Counts{}
	return counts
}

// Close waits for pending operations, which the next Take counts, and closes the session.
func (s *Stream) Close() error {
	if err := s.reader.end(context.Background()); err != nil {
		return fmt.Errorf("ycsb: %w", err)
	}
	return nil
}
