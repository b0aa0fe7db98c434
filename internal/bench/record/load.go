package record

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/kv"
)

// batch is the number of records that a thread of Load submits at once.
const batch = 64

// Load stores the records from 0 to count-1 from several threads. It does not commit, so the
// records in the store's mutable memory are still updated in place. progress may be nil.
func Load(ctx context.Context, store *kv.Store, count int64, valueSize, threads int, progress bench.Progress) error {
	progress = bench.OrQuiet(progress)
	group, ctx := errgroup.WithContext(ctx)
	share := (count + int64(threads) - 1) / int64(threads)
	for from := int64(0); from < count; from += share {
		group.Go(func() error { return loadRange(ctx, store, valueSize, from, min(from+share, count), progress) })
	}
	return group.Wait()
}

// loadRange stores the records from, from+1, …, to-1.
func loadRange(ctx context.Context, store *kv.Store, valueSize int, from, to int64, progress bench.Progress) (err error) {
	session := store.NewSession()
	defer func() { err = errors.Join(err, session.Close()) }()
	ops := make([]kv.Op, batch)
	buffers := make([]byte, batch*(KeySize+valueSize))
	for i := range ops {
		ops[i] = kv.Op{Kind: kv.OpUpsert, Key: buffers[:KeySize], Value: buffers[KeySize : KeySize+valueSize]}
		buffers = buffers[KeySize+valueSize:]
	}
	const report = 1 << 14
	for n, reported := from, from; n < to; {
		some := ops[:min(batch, to-n)]
		for i := range some {
			PutKey(some[i].Key, uint64(n)+uint64(i))
			FillValue(some[i].Value, uint64(n)+uint64(i))
		}
		if err := session.Do(context.Background(), some); err != nil {
			return fmt.Errorf("records from %d: %w", n, err)
		}
		for i := range some {
			if some[i].Err != nil {
				return fmt.Errorf("record %d: %w", n+int64(i), some[i].Err)
			}
		}
		n += int64(len(some))
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
