package ycsb

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// StreamSpec describes a [Stream].
type StreamSpec struct {
	// Operations use the records [First, First+Records), which exist.
	First, Records int64
	ValueSize      int // bytes of each value
	Depth          int // pending operations; 1: Next waits for each
	Distribution   Distribution
	Mix            Mix
	// Inserts has the record number of the next insert of any stream.
	Inserts *atomic.Int64
	// Seed selects the sequence of operations and record numbers.
	Seed int64
}

// Stream is one thread of this package's driver for a caller with its own loop. Operations
// begin one at a time, and many can be pending. It belongs to one goroutine.
type Stream struct {
	reader  *reader
	unasked int // operations begun since the last poll
}

// NewStream returns a stream with a new session on store. Close closes the session.
func NewStream(store *kv.Store, spec StreamSpec) (*Stream, error) {
	if spec.ValueSize < 1 || spec.ValueSize > MaxValueSize || spec.Depth < 1 || spec.Depth > MaxDepth || spec.First < 0 {
		return nil, fmt.Errorf("ycsb: stream from record %d on, values of %d bytes, %d pending", spec.First, spec.ValueSize, spec.Depth)
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

// Next begins an operation, and returns when there is room for another one. It returns the
// session's error. Take counts failed operations.
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
