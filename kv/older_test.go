package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/ssdtier"
)

// TestOlderAfterAnInterruptedRecovery ends the process at every step of the recovery of a
// snapshot, and then recovers an older state: a fold-over whose last block on the disk is the
// first block of the snapshots.
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
				if kind == Incremental { // its version of the block shared with the fold-over differs
					mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot, Name: "base"})
					scribble(t, st, rng, stageKeys, 100)
				}
				mustCheckpoint(t, st, CheckpointOptions{Kind: FoldOver, Name: "older"})
				want := contents(t, st, stageKeys)
				scribble(t, st, rng, stageKeys, 300)
				mustCheckpoint(t, st, CheckpointOptions{Kind: kind, Name: "newer"})
				crash(t, st)
				closeAll(t, dev)

				failed := raise().crashOpen(t, opts, k, true)

				raise()
				opts.Recover = "older"
				st, err := Open(opts)
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

// TestLastCommitCanBeNamed damages the only snapshot, which is newer than the last commit. The
// commit is not recovered instead of it, but can be named.
func TestLastCommitCanBeNamed(t *testing.T) {
	g := newStage(t, small(nil, 8, 8))
	g.scribble(100)
	if err := g.st.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := g.contents()
	g.make("newer", Snapshot)
	m := g.st.recorded()
	name := m.Named("newer").Snapshot
	g.fall()
	spoil(t, g.disk, name)
	if st, err := Open(g.opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `can name "commit"`) {
		t.Fatalf("opened with a damaged snapshot: %v, %v", st, err)
	}
	g.opts.Recover = LastCommit
	for range 2 { // the first time removes the snapshot
		g.st = open(t, g.opts)
		if got := g.contents(); !slices.Equal(got, want) {
			t.Fatalf("recovered %v, want %v\n%v", got, want, g.st.Recovery())
		}
		if r := g.st.Recovery(); r.From != LastCommit || g.kept() != "" {
			t.Errorf("%v", r)
		}
		g.fall()
	}
	g.disk = device.NewMemory() // a new store has no commit
	g.raise()
	if st, err := Open(g.opts); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("a commit of nothing: %v, %v", st, err)
	}
}
