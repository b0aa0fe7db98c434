package open

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// threads is the number of sessions that load records.
const threads = 2

// Live carries out a life, calls report, and returns when ctx ends, unless its process is killed
// before.
func Live(ctx context.Context, l Life, log *slog.Logger, report func(Result) error) (err error) {
	began, bytes, cpu := time.Now(), machine.DiskReads(), machine.ProcessCPU()
	ssd, err := ssdtier.Open(l.Dir)
	if err != nil {
		return fmt.Errorf("openbench: %w", err)
	}
	store, err := kv.Open(kv.Options{
		Device: ssd, Memory: l.Memory, KeySize: record.KeySize, ValueSize: l.ValueSize, Records: l.Records, Logger: log,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("openbench: %w", err), ssd.Close())
	}
	found := store.Recovery()
	result := Result{
		Opened: time.Since(began).Seconds(), Bytes: machine.DiskReads() - bytes, CPU: (machine.ProcessCPU() - cpu).Seconds(),
		Records: found.Records, Index: found.Index != "",
	}
	if err = check(store, l, found); err == nil {
		err = prepare(ctx, store, l)
	}
	closed := err != nil || l.Ending == Close
	if closed {
		err = errors.Join(err, store.Close())
	}
	if err == nil {
		err = report(result)
	}
	if err == nil {
		<-ctx.Done()
	}
	if !closed {
		err = errors.Join(err, store.Close())
	}
	return err
}

// check reads some records of a store that was opened.
func check(store *kv.Store, l Life, found kv.RecoveryReport) (err error) {
	if found.New != l.Load {
		return fmt.Errorf("openbench: a new store: %v, want %v", found.New, l.Load)
	}
	if l.Load {
		return nil
	}
	session := store.NewSession()
	defer func() { err = errors.Join(err, session.Close()) }()
	key, value := make([]byte, record.KeySize), []byte(nil)
	const some = 1000
	for i := range uint64(some) {
		n := uint64(l.Records-1) * i / some
		record.PutKey(key, n)
		if value, err = session.Read(key, value[:0]); err == nil {
			err = record.CheckValue(value, n, l.ValueSize)
		}
		if err != nil {
			return fmt.Errorf("openbench: record %d of %d: %w", n, l.Records, err)
		}
	}
	return nil
}

// prepare does what comes before an ending.
func prepare(ctx context.Context, store *kv.Store, l Life) error {
	if l.Load {
		if err := record.Load(ctx, store, l.Records, l.ValueSize, threads, nil); err != nil {
			return fmt.Errorf("openbench: load: %w", err)
		}
	}
	var err error
	switch l.Ending {
	case Crash:
		err = store.Commit(ctx)
	case FoldOver:
		err = checkpoint(ctx, store, kv.FoldOver)
	case Snapshot:
		err = checkpoint(ctx, store, kv.Snapshot)
	case Incremental:
		if err = checkpoint(ctx, store, kv.Snapshot); err == nil {
			err = record.Load(ctx, store, max(l.Records/100, 1), l.ValueSize, threads, nil)
		}
		if err == nil {
			err = checkpoint(ctx, store, kv.Incremental)
		}
	case Close:
	}
	if err != nil {
		err = fmt.Errorf("openbench: before %s: %w", l.Ending, err)
	}
	return err
}

func checkpoint(ctx context.Context, store *kv.Store, kind kv.CheckpointKind) error {
	_, err := store.Checkpoint(ctx, kv.CheckpointOptions{Kind: kind})
	return err
}
