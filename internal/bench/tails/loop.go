package tails

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// loop is the thread that operates at a fixed rate.
type loop struct {
	session   *kv.Session // nil: it does nothing
	first     uint64      // number of the first record
	numbers   *ycsb.Generator
	coins     *rand.PCG
	key       []byte
	value     []byte // written
	buffer    []byte // read
	latencies *hdrhistogram.Histogram
	ops       uint64
}

// newLoop returns a loop over so many records from the first one on.
func newLoop(first, records int64, valueSize int, seed int64) (*loop, error) {
	numbers, err := ycsb.Uniform.Generator(records, seed)
	if err != nil {
		return nil, err
	}
	return &loop{
		first: uint64(first), numbers: numbers, coins: rand.NewPCG(uint64(seed), 3), latencies: ycsb.NewLatencies(),
		key: make([]byte, record.KeySize), value: make([]byte, valueSize), buffer: make([]byte, 0, valueSize),
	}, nil
}

// run operates every step for at least that long, and until enough says so. A step of 0 is a loop
// without a pause, whose latencies are not measured.
func (l *loop) run(ctx context.Context, step float64, lasts time.Duration, enough func() bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	epoch := time.Now()
	now := func() float64 { return float64(time.Since(epoch)) }
	for due := 0.0; ; due += step {
		at := now()
		for at < due { // it does not sleep: it would wake up late
			at = now()
		}
		if at >= float64(lasts) && (enough() || at >= float64(longest)) {
			return ctx.Err()
		}
		if l.ops%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if l.session != nil {
			if err := l.operate(); err != nil {
				return err
			}
		}
		l.ops++
		if step > 0 {
			// RecordValue fails only for values out of range.
			_ = l.latencies.RecordValue(max(int64(now()-due), 1))
		}
	}
}

// operate reads a random record and checks it, or writes it.
func (l *loop) operate() error {
	n := l.first + uint64(l.numbers.Next())
	record.PutKey(l.key, n)
	if l.coins.Uint64()&1 == 0 {
		record.StampEnds(l.value, n)
		if err := l.session.Upsert(l.key, l.value); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		return nil
	}
	value, err := l.session.Read(l.key, l.buffer)
	if err != nil {
		return fmt.Errorf("record %d: %w", n, err)
	}
	if !record.EndsMatch(value, n, len(l.value)) {
		return fmt.Errorf("record %d has a wrong value, of %d bytes", n, len(value))
	}
	return nil
}
