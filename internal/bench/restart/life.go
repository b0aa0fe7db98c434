package restart

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ssdtier"
)

const (
	// sampleTime is the time of a sample of the throughput, and window the number of samples
	// whose mean is compared with the throughput before the kill.
	sampleTime = 50 * time.Millisecond
	window     = 10
	// share of the throughput before the kill that has to be reached.
	share = 0.9
	// linger is long enough for a start.
	linger = 10 * time.Minute
)

// Live carries out a life, and calls report. It returns when ctx ends.
func Live(ctx context.Context, l Life, log *slog.Logger, report func(Result) error) (err error) {
	began := time.Now()
	r, err := open(ctx, l, log)
	if err != nil {
		return fmt.Errorf("restartbench: open: %w", err)
	}
	result := Result{Opened: time.Since(began).Seconds()}
	if l.Start == New {
		if err = r.load(ctx); err != nil {
			return errors.Join(fmt.Errorf("restartbench: load: %w", err), r.close())
		}
	} else if err = r.recover(ctx, &result); err != nil {
		return errors.Join(fmt.Errorf("restartbench: %s: %w", l.Start, err), r.close())
	}
	if err = r.settle(ctx); err == nil {
		result.Mops, err = r.measure(ctx, l.Before)
	}
	if err == nil {
		err = report(result)
	}
	for err == nil {
		_, err = r.measure(ctx, time.Second)
	}
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, r.close())
}

// reader is an open store and one session, which belongs to the goroutine that calls Live.
type reader struct {
	Life
	store   *kv.Store
	session *kv.Session
	rng     *rand.PCG
	ops     []kv.Op
	free    []*kv.Op
	done    []*kv.Op
}

func open(ctx context.Context, l Life, log *slog.Logger) (*reader, error) {
	ssd, err := ssdtier.Open(l.Dir)
	if err != nil {
		return nil, err
	}
	mgr := access.Dial(l.Manager)
	redy, err := redytier.Open(ctx, mgr, redytier.Config{
		Capacity: l.Cache, Transport: l.Transport, Linger: linger, Companion: ssd, Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, ssd.Close())
	}
	tiered := device.NewTieredWith(device.TieredOptions{Names: []string{"redy", "ssd"}, Logger: log}, redy, ssd)
	store, err := kv.Open(kv.Options{
		Device: tiered, Memory: l.Memory, KeySize: record.KeySize, ValueSize: l.ValueSize, Records: l.Records, QueueDepth: l.Depth, Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, tiered.Close())
	}
	r := &reader{
		Life: l, store: store, session: store.NewSession(), rng: rand.NewPCG(uint64(time.Now().UnixNano()), 1),
		ops: make([]kv.Op, l.Depth), free: make([]*kv.Op, l.Depth), done: make([]*kv.Op, l.Depth),
	}
	for i := range r.ops {
		r.ops[i] = kv.Op{Kind: kv.OpRead, Key: make([]byte, record.KeySize), Value: make([]byte, 0, l.ValueSize)}
		r.free[i] = &r.ops[i]
	}
	return r, nil
}

func (r *reader) close() error { return errors.Join(r.session.Close(), r.store.Close()) }

// Forget ends the cache of a store that is not open, so that the next start is cold.
func Forget(ctx context.Context, dir, manager string) error {
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		return err
	}
	// A device without Linger returns what an earlier process has left.
	redy, err := redytier.Open(ctx, access.Dial(manager), redytier.Config{
		Capacity: redytier.MinRegionSize, Companion: ssd, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = redy.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	return errors.Join(err, ssd.Close())
}

// load writes all records and makes a checkpoint.
func (r *reader) load(ctx context.Context) error {
	key, value := make([]byte, record.KeySize), make([]byte, r.ValueSize)
	for n := range uint64(r.Records) {
		record.PutKey(key, n)
		record.StampEnds(value, n)
		if err := r.session.Upsert(key, value); err != nil {
			return err
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	_, err := r.store.Checkpoint(ctx, kv.CheckpointOptions{Name: "loaded", Kind: kv.FoldOver})
	return err
}

// recover reads until the store is as fast as Target.
func (r *reader) recover(ctx context.Context, result *Result) error {
	before := r.store.Metrics().Device.Tiers
	began := time.Now()
	for {
		mops, err := r.measure(ctx, sampleTime)
		if err != nil {
			return err
		}
		result.Series = append(result.Series, mops)
		first := len(result.Series) - window
		if first >= 0 && bench.Mean(result.Series[first:]) >= share*r.Target {
			// The window's first sample began as early as this.
			result.To90 = result.Opened + float64(first)*time.Since(began).Seconds()/float64(len(result.Series))
			break
		}
		if since := time.Since(began); since > r.Patience {
			return fmt.Errorf("%.3f Mop/s after %v, want %.3f: the store is not as fast as before", mops, since, share*r.Target)
		}
	}
	now := r.store.Metrics().Device.Tiers
	redy, ssd := float64(now[0].Hits-before[0].Hits), float64(now[1].Hits-before[1].Hits)
	if redy+ssd > 0 {
		result.HitRedy = redy / (redy + ssd)
	}
	return nil
}

// settle reads until Redy holds all that it has room for.
func (r *reader) settle(ctx context.Context) error {
	began := time.Now()
	for r.store.Metrics().Device.Tiers[0].Missing > 0 {
		if _, err := r.measure(ctx, sampleTime); err != nil {
			return err
		}
		if since := time.Since(began); since > r.Patience {
			return fmt.Errorf("%d bytes are missing on Redy after %v", r.store.Metrics().Device.Tiers[0].Missing, since)
		}
	}
	return nil
}

// clockEvery is the number of polls between two looks at the clock.
const clockEvery = 16

// measure reads records at random for a time, and returns 10^6 reads a second. Each value is
// checked.
func (r *reader) measure(ctx context.Context, lasts time.Duration) (mops float64, err error) {
	began, reads := time.Now(), 0
	for {
		for range clockEvery {
			for _, op := range r.free {
				record.PutKey(op.Key, bench.Draw(r.rng, uint64(r.Records)))
				op.Value = op.Value[:0]
				if err := r.session.Submit(op); err != nil {
					return 0, err
				}
			}
			r.free = r.free[:0]
			if err := r.session.Wait(ctx); err != nil {
				return 0, err
			}
			n := r.session.Poll(r.done)
			for _, op := range r.done[:n] {
				number := record.KeyNumber(op.Key)
				if op.Err != nil || !record.EndsMatch(op.Value, number, r.ValueSize) {
					return 0, fmt.Errorf("record %d reads %d bytes that are not its value: %w", number, len(op.Value), op.Err)
				}
			}
			r.free = append(r.free, r.done[:n]...)
			reads += n
		}
		if took := time.Since(began); took >= lasts {
			return float64(reads) / took.Seconds() / 1e6, ctx.Err()
		}
	}
}
