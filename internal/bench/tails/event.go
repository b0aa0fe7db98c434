package tails

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/kv"
)

// happening is an event of a store.
type happening struct {
	spec  *Spec
	event Event
	store *kv.Store
	next  int64       // the record that is inserted next
	grown atomic.Bool // the event growth is over
}

// prepare makes a loaded store ready for the event.
func (h *happening) prepare(ctx context.Context) error {
	if h.event != Compaction {
		return nil
	}
	return h.store.Commit(ctx) // only what is read-only is compacted
}

// once lets the event happen once. It returns nil, too, if ctx has ended meanwhile.
func (h *happening) once(ctx context.Context) (err error) {
	switch h.event {
	case Checkpoint:
		_, err = h.store.Checkpoint(ctx, kv.CheckpointOptions{Kind: kv.Snapshot})
	case Compaction:
		_, err = h.store.Compact(ctx, kv.CompactOptions{Until: h.store.Metrics().Log.ReadOnly})
		if err == nil {
			err = h.store.Commit(ctx)
		}
	case Growth:
		err = h.insert(ctx, (growth-1)*h.spec.Records)
		if err == nil {
			h.grown.Store(true)
			<-ctx.Done() // it has grown for good
		}
	case Commit:
		err = h.store.Commit(ctx)
		clock.Sleep(ctx, 100*time.Millisecond)
	case Flush:
		err = h.insert(ctx, max(h.spec.Records/hotShare, 1))
	case Resize:
		opts := h.spec.options(Resize)
		err = h.store.SetMemory(ctx, opts.Memory/2)
		if err == nil {
			err = h.store.SetMemory(ctx, opts.Memory)
		}
		clock.Sleep(ctx, 100*time.Millisecond)
	default:
		<-ctx.Done()
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.event, err)
	}
	return nil
}

// insert inserts that many new records.
func (h *happening) insert(ctx context.Context, count int64) (err error) {
	session := h.store.NewSession()
	defer func() { err = errors.Join(err, session.Close()) }()
	key, value := make([]byte, record.KeySize), make([]byte, h.spec.ValueSize)
	for end := h.next + count; h.next < end; h.next++ {
		if h.next%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		record.PutKey(key, uint64(h.next))
		record.StampEnds(value, uint64(h.next))
		if err := session.Upsert(key, value); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether a slice has seen its event.
func (h *happening) over(happened *atomic.Int64) bool {
	switch h.event {
	case Machine, Quiet:
		return true
	case Growth:
		return h.grown.Load()
	}
	return happened.Load() > 0
}
