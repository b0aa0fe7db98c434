package ycsb

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/kv"
)

// loadBatch is the number of records that a loading thread submits at once.
const loadBatch = 64

// Load stores the records 0 to shape.Records-1 as [Fill] does and commits them, so that no
// writes are pending when it returns.
func Load(ctx context.Context, store *kv.Store, shape Shape, threads int, progress Progress) error {
	if err := Fill(ctx, store, shape, threads, progress); err != nil {
		return err
	}
	if err := store.Commit(ctx); err != nil {
		return fmt.Errorf("ycsb: commit after loading: %w", err)
	}
	return nil
}

// Fill stores the records 0 to shape.Records-1 from several threads. It does not commit, so
// the records in the store's mutable memory are still updated in place.
func Fill(ctx context.Context, store *kv.Store, shape Shape, threads int, progress Progress) error {
	if err := shape.check(); err != nil {
		return fmt.Errorf("ycsb: load: %w", err)
	}
	if threads < 1 || threads > MaxThreads {
		return fmt.Errorf("ycsb: load: %d threads: want 1 to %d", threads, MaxThreads)
	}
	progress = bench.OrQuiet(progress)
	group, groupCtx := errgroup.WithContext(ctx)
	share := (shape.Records + int64(threads) - 1) / int64(threads)
	for from := int64(0); from < shape.Records; from += share {
		to := min(from+share, shape.Records)
		group.Go(func() error {
			return loadRange(groupCtx, store, shape.ValueSize, from, to, progress)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("ycsb: load: %w", err)
	}
	return nil
}

// loadRange stores the records from, from+1, …, to-1.
func loadRange(ctx context.Context, store *kv.Store, valueSize int, from, to int64, progress Progress) (err error) {
	session := store.NewSession()
	defer func() {
		if closeErr := session.Close(); err == nil {
			err = closeErr
		}
	}()
	ops := make([]kv.Op, loadBatch)
	buffers := make([]byte, loadBatch*(KeySize+valueSize))
	for i := range ops {
		ops[i] = kv.Op{Kind: kv.OpUpsert, Key: buffers[:KeySize], Value: buffers[KeySize : KeySize+valueSize]}
		buffers = buffers[KeySize+valueSize:]
	}
	const report = 1 << 14
	for n, reported := from, from; n < to; {
		batch := ops[:min(loadBatch, to-n)]
		for i := range batch {
			PutKey(batch[i].Key, uint64(n)+uint64(i))
			FillValue(batch[i].Value, uint64(n)+uint64(i))
		}
		if err := session.Do(context.Background(), batch); err != nil {
			return fmt.Errorf("records from %d: %w", n, err)
		}
		for i := range batch {
			if batch[i].Err != nil {
				return fmt.Errorf("record %d: %w", n+int64(i), batch[i].Err)
			}
		}
		n += int64(len(batch))
		if n-reported >= report || n == to {
			progress.Add(n - reported)
			reported = n
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
