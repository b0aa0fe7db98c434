package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestReopenWithOtherOptions reopens a store many times, after crashes and after Close, with
// different values of every option that may change, and recovers another kind of checkpoint
// each time.
func TestReopenWithOtherOptions(t *testing.T) {
	for seed := range uint64(testrun.Raced(16, 4)) {
		alignment := []int{0, 512, 16 << 10, 64 << 10}[seed%4]
		t.Run(fmt.Sprintf("%d/%d", alignment, seed), func(t *testing.T) {
			g := newStage(t, small(nil, 8, 8))
			closeAll(t, g.st)
			scale := max(1, alignment>>10) // of all sizes: pages of 1 KiB and more
			g.opts.PageSize *= scale
			g.opts.Memory *= int64(scale)
			g.disk, g.alignment = device.NewMemory(), alignment
			g.raise()
			g.st = open(t, g.opts)
			g.rng = rand.New(rand.NewPCG(seed, 7))
			g.opts.Checkpoints.Keep = 3
			var names []string
			states := map[string][]uint64{}
			for i := range 30 {
				g.scribble(g.rng.IntN(200 * scale))
				if g.rng.IntN(4) == 0 {
					if err := g.st.GrowIndex(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				if g.rng.IntN(3) == 0 {
					if _, err := g.st.Compact(context.Background(), CompactOptions{Method: CompactMethod(g.rng.IntN(3))}); err != nil {
						t.Fatal(err)
					}
				}
				info := mustCheckpoint(t, g.st, CheckpointOptions{
					Kind: []CheckpointKind{FoldOver, Snapshot, Incremental}[g.rng.IntN(3)], LogOnly: g.rng.IntN(3) == 0,
				})
				states[info.Name] = g.contents()
				want := states[info.Name]
				if g.rng.IntN(2) == 0 {
					g.scribble(g.rng.IntN(100))
				}
				names = names[:0]
				for _, c := range g.st.Checkpoints() {
					names = append(names, c.Name)
				}
				if g.opts.Recover = ""; g.rng.IntN(3) == 0 {
					g.opts.Recover = names[g.rng.IntN(len(names))]
					want = states[g.opts.Recover]
				}
				g.fall()
				g.opts.Memory = int64(scale) * []int64{4 << 10, 8 << 10, 16 << 10, 64 << 10}[g.rng.IntN(4)]
				g.opts.MutableFraction = []float64{0.1, 0.5, 0.9, 1}[g.rng.IntN(4)]
				g.opts.indexBits = 1 + g.rng.IntN(6)
				if g.opts.ReadCache = 0; g.opts.Memory > int64(scale)*8<<10 && g.rng.IntN(2) == 0 {
					g.opts.ReadCache = 0.25
				}
				g.st = open(t, g.opts)
				if got := g.contents(); !slices.Equal(got, want) {
					t.Fatalf("opening %d, %q: %v\nwant %v\n%v", i, g.opts.Recover, got, want, g.st.Recovery())
				}
				if err := g.uncollected(); err != nil {
					t.Error(err)
				}
			}
			closeAll(t, g.st)
		})
	}
}

// TestCheckpointsBesideCompaction makes checkpoints while one session writes and another
// compacts, and recovers each kept one, newest first. Its contents agree with its commit
// points.
func TestCheckpointsBesideCompaction(t *testing.T) {
	write := func(t *testing.T, s *Session) {
		n := s.Serial() + 1
		var err error
		if key := key8(n * 7 % stageKeys); n%11 == 0 {
			err = s.Delete(key)
		} else {
			err = s.Upsert(key, key8(n))
		}
		if err != nil {
			t.Error(err)
		}
	}
	written := func(until uint64) []uint64 {
		all := make([]uint64, stageKeys)
		for n := uint64(1); n <= until; n++ {
			if all[n*7%stageKeys] = n; n%11 == 0 {
				all[n*7%stageKeys] = 0
			}
		}
		return all
	}
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newStage(t, small(nil, 8, 8))
			g.alignment = 512 * int(seed%2)
			g.fall()
			g.opts.Checkpoints.Keep = 4
			g.st = open(t, g.opts)
			g.rng = rand.New(rand.NewPCG(seed, 9))
			s, err := g.st.NewNamedSession("it")
			if err != nil {
				t.Fatal(err)
			}
			var stop atomic.Bool
			var others sync.WaitGroup
			others.Go(func() {
				for !stop.Load() {
					write(t, s)
				}
			})
			others.Go(func() {
				for i := 0; !stop.Load(); i++ {
					if _, err := g.st.Compact(context.Background(), CompactOptions{Method: CompactMethod(i % 3)}); err != nil {
						t.Error(err)
					}
				}
			})
			for range 12 {
				mustCheckpoint(t, g.st, CheckpointOptions{Kind: logKinds[g.rng.IntN(len(logKinds))]})
			}
			stop.Store(true)
			others.Wait()
			kept := g.st.Checkpoints()
			closeAll(t, s)
			for _, c := range slices.Backward(kept) {
				g.fall()
				g.opts.Recover = c.Name
				g.st = open(t, g.opts)
				p, _ := g.st.CommitPoint("it")
				if got, want := g.contents(), written(p.Until); !slices.Equal(got, want) {
					t.Fatalf("%v after %d writes: %v\nwant %v\n%v", c, p.Until, got, want, g.st.Recovery())
				}
			}
			closeAll(t, g.st)
		})
	}
}

// A store that is closed leaves a copy of its index if the next Open would read much of the log
// otherwise, and only then.
func TestCloseLeavesIndex(t *testing.T) {
	disk := device.NewMemory()
	opts := small(disk, 8, 8)
	lives := []struct {
		name   string
		writes uint64 // of 32 bytes in the log; the memory holds 4 KiB
		fails  bool   // objects cannot be written
		copied bool   // by Close
	}{
		{"all in memory", 100, false, false},
		{"far beyond memory, but no object can be written", 20_000, true, false},
		{"nothing new, but there is no copy", 0, false, true},
		{"nothing new", 0, false, false},
		{"little new", 20, false, false},
		{"much new", 20_000, false, true},
	}
	n, object, since := uint64(0), "", uint64(0) // since: writes that the copy lacks
	for _, life := range lives {
		opts.Device = disk
		if life.fails {
			opts.Device = objectless{disk}
		}
		st := open(t, opts)
		if r := st.Recovery(); r.Index != object || object != "" && r.ScannedFrom == r.Begin {
			t.Errorf("%s: opened with the copy %q, want %q; read from %d, the log begins at %d", life.name, r.Index, object, r.ScannedFrom, r.Begin)
		} else if object != "" && r.Records != int64(since) {
			t.Errorf("%s: %d records were read into the index, of %d that its copy lacks", life.name, r.Records, since)
		}
		for range life.writes {
			if err := st.Upsert(context.Background(), key8(n%500), key8(n)); err != nil {
				t.Fatal(err)
			}
			n++
		}
		for k := n - min(n, 500); k < n; k++ {
			readBack(st.Read(context.Background(), key8(k%500), nil)).Want(t, key8(k), "%s: key %d", life.name, k%500)
		}
		closeAll(t, st)
		disk = disk.Reopen()
		names, err := disk.ListObjects()
		if err != nil || len(names) > 1 {
			t.Fatalf("%s: objects %q, %v", life.name, names, err)
		}
		before := object
		if len(names) == 1 {
			object = names[0]
		}
		if since += life.writes; life.copied {
			since = 0
		}
		if (object != before) != life.copied {
			t.Errorf("%s: the copy was %q, is %q", life.name, before, object)
		}
	}
}

// objectless is a device that cannot write objects.
type objectless struct{ *device.Memory }

func (objectless) CreateObject(string) (device.ObjectWriter, error) {
	return nil, errors.New("no objects today")
}
