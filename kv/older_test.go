package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redykv/redykv/ssdtier"
)

// TestOlderAfterAnInterruptedRecovery has the process die at every step of a
// recovery to a snapshot, and brings the store back to what is older: a fold-over
// whose last block on the disk is the first one that the snapshots have as well.
func TestOlderAfterAnInterruptedRecovery(t *testing.T) {
	for _, kind := range []CheckpointKind{Snapshot, Incremental} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			every(t, func(k int64) bool {
				dir := t.TempDir()
				opts := small(nil, 8, 8)
				opts.PageSize, opts.Memory, opts.indexBits, opts.Logger = 4096, 64<<10, 4, silent
				opts.Checkpoints.Keep = 4
				raise := func() *dying {
					ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{Buffered: true, Logger: silent})
					if err != nil {
						t.Fatal(err)
					}
					d := newDying(ssd)
					opts.Device = d
					return d
				}
				rng := rand.New(rand.NewPCG(2, 2))
				dev := raise()
				st := open(t, opts)
				scribble(t, st, rng, stageKeys, 100)
				if kind == Incremental { // the block that it shares with the fold-over was another one
					mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot, Name: "base"})
					scribble(t, st, rng, stageKeys, 100)
				}
				mustCheckpoint(t, st, CheckpointOptions{Kind: FoldOver, Name: "older"})
				want := contents(t, st, stageKeys)
				scribble(t, st, rng, stageKeys, 300)
				mustCheckpoint(t, st, CheckpointOptions{Kind: kind, Name: "newer"})
				crash(t, st)
				closeAll(t, dev)

				dev = raise()
				dev.arm(k, true)
				st, err := Open(opts)
				failed := dev.spent()
				if err == nil {
					crash(t, st)
				} else if !errors.Is(err, errDying) {
					t.Fatalf("step %d: %v", k, err)
				}
				closeAll(t, dev)

				raise()
				opts.Recover = "older"
				st, err = Open(opts)
				if err != nil {
					t.Fatalf("step %d: %v", k, err)
				}
				if got := contents(t, st, stageKeys); !slices.Equal(got, want) {
					t.Fatalf("step %d: recovered %v, want %v", k, got, want)
				}
				if err := st.Commit(context.Background()); err != nil {
					t.Fatal(err)
				}
				closeAll(t, st)
				return failed
			})
		})
	}
}
