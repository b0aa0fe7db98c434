package kv

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
)

// TestCompactionCutShort fails each device operation of a compaction in turn. Then the power
// fails, also after a compaction without an error. The committed state is recovered, whatever
// part of the writes since the last sync the disk has kept.
func TestCompactionCutShort(t *testing.T) {
	for _, method := range compactMethods {
		for _, fails := range []string{"write", "read"} {
			t.Run(method.String()+"/"+fails, func(t *testing.T) {
				for k := int64(1); ; k++ {
					if !compactUntilCut(t, method, fails, k) {
						if k < 3 {
							t.Errorf("only %d %ss in a compaction", k-1, fails)
						}
						return
					}
				}
			})
		}
	}
}

// compactUntilCut fails the k-th read or write of a compaction, and reports whether there was
// one.
func compactUntilCut(t *testing.T, method CompactMethod, fails string, k int64) (cut bool) {
	inner := device.NewMemory()
	opts := small(inner, 8, 8)
	opts.Logger = slog.New(slog.DiscardHandler) // errors are expected
	st := open(t, opts)
	rng := rand.New(rand.NewPCG(uint64(k), 2))
	const keys = 120
	want := map[string]string{}
	for n := range uint64(600) {
		key := key8(rng.Uint64N(keys))
		if rng.IntN(5) == 0 {
			if err := st.Delete(context.Background(), key); err != nil {
				t.Fatal(err)
			}
			delete(want, string(key))
			continue
		}
		if err := st.Upsert(context.Background(), key, key8(n)); err != nil {
			t.Fatal(err)
		}
		want[string(key)] = string(key8(n))
	}
	closeAll(t, st)

	faults := device.FaultyOptions{Seed: uint64(k), FailWrite: k}
	if fails == "read" {
		faults = device.FaultyOptions{Seed: uint64(k), FailRead: k}
	}
	inner = inner.Reopen()
	dev := device.NewCrashable(inner, faults)
	opts.Device = dev
	st, err := Open(opts)
	if err != nil {
		closeAll(t, dev)
		return true // opening failed
	}
	half := (st.log.Tail() - st.log.Begin()) / 2
	_, err = st.Compact(context.Background(), CompactOptions{Method: method, Bytes: half})
	if err == nil {
		_, err = st.Compact(context.Background(), CompactOptions{Method: method})
	}
	if fails == "read" { // the store continues
		left := maps.Clone(want)
		for r, err := range st.Scan() {
			if err != nil {
				break // the armed operation may be one of this read
			}
			delete(left, string(r.Key))
		}
		if err != nil && len(left) > 0 {
			t.Errorf("%d: after %v, %d keys of %d are missing", k, err, len(left), len(want))
		}
	}
	for _, s := range st.pool.idle {
		closeAll(t, s)
	}
	crash(t, st)
	if err := dev.Crash(rng.Float64()); err != nil {
		t.Fatal(err)
	}
	opts.Device = inner.Reopen()
	st, openErr := Open(opts)
	if openErr != nil {
		t.Fatalf("%d: after %v: %v", k, err, openErr)
	}
	check(t, st, keys, want)
	mustCompact(t, st, CompactOptions{Method: method})
	check(t, st, keys, want)
	if t.Failed() {
		t.Fatalf("operation %d: %v", k, err)
	}
	closeAll(t, st)
	return err != nil
}
