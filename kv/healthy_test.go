package kv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/inspect"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// deviceFiles presents a device to Inspect.
type deviceFiles struct {
	device.Device
	t *testing.T
}

func (d deviceFiles) ReadAt(p []byte, addr int64) (int, error) {
	q, err := d.NewQueue(1)
	if err != nil {
		return 0, err
	}
	defer closeAll(d.t, q)
	if err := device.Finish(context.Background(), q, q.Read(p, addr, 0)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (d deviceFiles) LostSums(int64, int64, func(from, until int64, err error)) {}

var _ io.ReaderAt = deviceFiles{}

// healthyActs are the actions on a store, before the power fails and when it does.
var healthyActs = []struct {
	name string
	do   func(ctx context.Context, g *stage) error
}{
	{"write", func(_ context.Context, g *stage) error {
		s := g.st.NewSession()
		for range g.rng.IntN(200) {
			key := key8(g.rng.Uint64N(stageKeys))
			var err error
			if g.rng.IntN(8) == 0 {
				err = s.Delete(key)
			} else {
				err = s.Upsert(key, key8(g.rng.Uint64()))
			}
			if err != nil && !errors.Is(err, ErrNotFound) {
				return errors.Join(err, s.Close())
			}
		}
		return s.Close()
	}},
	{"commit", func(ctx context.Context, g *stage) error { return g.st.Commit(ctx) }},
	{"clear", func(_ context.Context, g *stage) error { return g.st.Clear(context.Background()) }},
	{"compact", func(ctx context.Context, g *stage) error {
		_, err := g.st.Compact(ctx, CompactOptions{Method: CompactMethod(g.rng.IntN(3))})
		return err
	}},
	{"grow", func(ctx context.Context, g *stage) error { return g.st.GrowIndex(ctx) }},
	{"index", func(ctx context.Context, g *stage) error {
		_, err := g.st.Checkpoint(ctx, CheckpointOptions{Kind: Index})
		return err
	}},
	{"checkpoint", func(ctx context.Context, g *stage) error {
		_, err := g.st.Checkpoint(ctx, CheckpointOptions{
			Kind: []CheckpointKind{FoldOver, Snapshot, Incremental}[g.rng.IntN(3)], LogOnly: g.rng.IntN(2) == 0,
		})
		return err
	}},
}

// TestInspectHealthy does random actions on stores, fails the power at any operation of the
// device, also during recovery to any of their states, and inspects the stores. Inspection
// finds no fault.
func TestInspectHealthy(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newStage(t, small(nil, 8, 8))
			g.rng = rand.New(rand.NewPCG(seed, 19))
			g.opts.Checkpoints.Keep = 1 + g.rng.IntN(4)
			ctx := context.Background()
			var done []string
			for range 12 {
				for range 1 + g.rng.IntN(8) {
					act := healthyActs[g.rng.IntN(len(healthyActs))]
					done = append(done, act.name)
					if err := act.do(ctx, g); err != nil {
						t.Fatalf("%v: %v", done, err)
					}
				}
				act := healthyActs[g.rng.IntN(len(healthyActs))]
				k := g.rng.Int64N(20)
				g.dev.arm(k, true)
				if err := act.do(ctx, g); err != nil && !errors.Is(err, errDying) {
					t.Fatalf("%v, %s: %v", done, act.name, err)
				}
				done = append(done, fmt.Sprintf("%s cut off after %d", act.name, k))
				g.fall()
				check := func() {
					t.Helper()
					if in := inspect.Store(deviceFiles{g.disk.Reopen(), t}, inspect.Options{}); !in.OK() {
						t.Fatalf("%v: %v", done, in)
					}
				}
				check()
				g.opts.Recover = ""
				if m, err := manifest.Read(g.dev); err != nil {
					t.Fatal(err)
				} else if m != nil && len(m.Checkpoints) > 0 && g.rng.IntN(3) == 0 {
					g.opts.Recover = m.Checkpoints[g.rng.IntN(len(m.Checkpoints))].Name
				}
				if g.rng.IntN(2) == 0 { // Open is cut off; the store can be opened again
					k := g.rng.Int64N(10)
					done = append(done, fmt.Sprintf("opening at %q cut off after %d", g.opts.Recover, k))
					g.dev.crashOpen(t, g.opts, k, true)
					if err := g.crash.Crash(g.rng.Float64()); err != nil {
						t.Fatal(err)
					}
					g.raise()
					check()
					if m, err := manifest.Read(g.dev); err != nil || m == nil || m.Named(g.opts.Recover) == nil {
						g.opts.Recover = ""
					}
				}
				done = append(done, fmt.Sprintf("opened at %q", g.opts.Recover))
				g.st = open(t, g.opts)
			}
			closeAll(t, g.st)
		})
	}
}
