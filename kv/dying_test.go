package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/restore"
)

// dying is a device that fails one of its changing operations, or that one and all later ones.
// Reads succeed.
type dying struct {
	device.Device
	left    atomic.Int64 // operations until the failure; negative: operations since
	forever atomic.Bool
	align   int // if not 0, overrides the alignment of the inner device with a larger one
}

func (d *dying) Alignment() int { return max(d.align, d.Device.Alignment()) }

var errDying = errors.New("the device has failed")

const never = 1 << 60

func newDying(inner device.Device) *dying {
	d := &dying{Device: inner}
	d.left.Store(never)
	return d
}

// arm fails the operation after the next n.
func (d *dying) arm(n int64, forever bool) {
	d.forever.Store(forever)
	d.left.Store(n + 1)
}

// spent reports whether an operation has failed since arm.
func (d *dying) spent() bool { return d.left.Load() <= 0 }

func (d *dying) step() error {
	if left := d.left.Add(-1); left == 0 || left < 0 && d.forever.Load() {
		return errDying
	}
	return nil
}

func (d *dying) try(f func() error) error {
	if err := d.step(); err != nil {
		return err
	}
	return f()
}

func (d *dying) Sync() error { return d.try(d.Device.Sync) }

func (d *dying) Start(tail int64) error {
	return d.try(func() error { return d.Device.Start(tail) })
}

func (d *dying) Prepare(tail int64) error {
	return d.try(func() error { return device.Prepare(d.Device, tail) })
}

func (d *dying) Truncate(begin int64) error {
	return d.try(func() error { return d.Device.Truncate(begin) })
}

func (d *dying) WriteMeta(name string, data []byte) error {
	return d.try(func() error { return d.Device.WriteMeta(name, data) })
}

func (d *dying) RemoveObject(name string) error {
	return d.try(func() error { return d.Device.RemoveObject(name) })
}

func (d *dying) CreateObject(name string) (device.ObjectWriter, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	w, err := d.Device.CreateObject(name)
	return &dyingWriter{w, d}, err
}

func (d *dying) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &dyingQueue{q, d}, err
}

type dyingWriter struct {
	device.ObjectWriter
	d *dying
}

func (w *dyingWriter) Write(p []byte) (int, error) {
	if err := w.d.step(); err != nil {
		return 0, err
	}
	return w.ObjectWriter.Write(p)
}

func (w *dyingWriter) Commit() error { return w.d.try(w.ObjectWriter.Commit) }

type dyingQueue struct {
	device.Queue
	d *dying
}

func (q *dyingQueue) Write(src []byte, addr int64, tag uint64) error {
	align := int64(q.d.Alignment())
	if at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(src)))); (at|addr|int64(len(src)))&(align-1) != 0 {
		return fmt.Errorf("write of %d bytes in memory at %#x to %d: not aligned to %d", len(src), at, addr, align)
	}
	if err := q.d.step(); err != nil {
		return err
	}
	return q.Queue.Write(src, addr, tag)
}

// stage is a store on a disk that loses writes without a sync, behind a device that can fail.
type stage struct {
	t     *testing.T
	disk  *device.Memory
	crash *device.Faulty
	dev   *dying
	opts  Options
	st    *Store
	rng   *rand.Rand

	alignment int // of devices that are opened later; 0: the default
}

const stageKeys = 80

func newStage(t *testing.T, opts Options) *stage {
	g := &stage{t: t, disk: device.NewMemory(), opts: opts, rng: rand.New(rand.NewPCG(1, 1))}
	g.opts.indexBits, g.opts.Memory = 4, 16<<10
	g.opts.Logger = silent
	g.raise()
	g.st = open(t, g.opts)
	return g
}

// raise opens new devices on the disk.
func (g *stage) raise() {
	g.crash = device.NewCrashable(g.disk.Reopen(), device.FaultyOptions{Seed: 1})
	g.dev = newDying(g.crash)
	g.dev.align = g.alignment
	g.opts.Device = g.dev
}

// fall crashes the process, fails the power, and opens the devices again.
func (g *stage) fall() {
	if g.st != nil {
		crash(g.t, g.st)
	}
	if err := g.crash.Crash(0.5); err != nil {
		g.t.Fatal(err)
	}
	g.raise()
	g.st = nil
}

func (g *stage) scribble(n int) { scribble(g.t, g.st, g.rng, stageKeys, n) }

func (g *stage) contents() []uint64 { return contents(g.t, g.st, stageKeys) }

// uncollected returns an error if there are objects that the manifest does not name.
func (g *stage) uncollected() error {
	names, err := g.disk.ListObjects()
	m := g.st.recorded()
	needed := m.Objects()
	for _, name := range names {
		if !needed[name] {
			err = errors.Join(err, fmt.Errorf("object %q belongs to nothing", name))
		}
	}
	if len(names) < len(needed) {
		err = errors.Join(err, fmt.Errorf("objects %q, want %v", names, needed))
	}
	return err
}

// crashOpen opens a store on the device, which fails its k-th operation, crashes the store,
// and closes the device. It reports whether an operation failed.
func (d *dying) crashOpen(t *testing.T, opts Options, k int64, forever bool) (failed bool) {
	t.Helper()
	opts.Device = d
	d.arm(k, forever)
	st, err := Open(opts)
	failed = d.spent()
	if err == nil {
		crash(t, st)
	} else if !errors.Is(err, errDying) {
		t.Fatalf("step %d: %v", k, err)
	}
	closeAll(t, d)
	return failed
}

// every calls f with 0, 1, 2 and so on until f reports that no operation failed.
func every(t *testing.T, f func(k int64) (failed bool)) {
	t.Helper()
	k := int64(0)
	for f(k) {
		if k++; k > 1000 {
			t.Fatal("it fails for ever")
		}
	}
	if k == 0 {
		t.Error("no operation could fail")
	}
}

// checkpointed are the ways to make a state durable. Each runs on a device that can fail.
var checkpointed = map[string]func(ctx context.Context, st *Store) error{
	"commit": func(ctx context.Context, st *Store) error { return st.Commit(ctx) },
	"index": func(ctx context.Context, st *Store) error {
		_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: Index})
		return errors.Join(err, st.Commit(ctx))
	},
	"fold-over": func(ctx context.Context, st *Store) error {
		_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: FoldOver})
		return err
	},
	"snapshot": func(ctx context.Context, st *Store) error {
		_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: Snapshot})
		return err
	},
	"incremental": func(ctx context.Context, st *Store) error {
		_, err := st.Checkpoint(ctx, CheckpointOptions{Kind: Incremental, LogOnly: true})
		return err
	},
	"compaction": func(ctx context.Context, st *Store) error {
		_, err := st.Compact(ctx, CompactOptions{})
		return err
	},
}

// TestDyingAtEveryStep fails the power at every step of making a state durable. Recovery finds
// the old state or the whole new one; it finds the new one if the call succeeded.
func TestDyingAtEveryStep(t *testing.T) {
	for name, work := range checkpointed {
		t.Run(name, func(t *testing.T) {
			every(t, func(k int64) bool {
				g := newStage(t, small(nil, 8, 8))
				g.opts.Checkpoints.Keep = 1
				for _, kind := range []CheckpointKind{FoldOver, Snapshot, Snapshot} {
					g.scribble(150)
					mustCheckpoint(t, g.st, CheckpointOptions{Kind: kind})
				}
				before := g.contents()
				g.scribble(20)
				after := g.contents()
				g.dev.arm(k, true)
				err := work(context.Background(), g.st)
				failed := g.dev.spent()
				g.fall()
				g.st = open(t, g.opts)
				got := g.contents()
				switch {
				case slices.Equal(got, after):
				case err == nil:
					t.Fatalf("step %d: said to be durable, but gone: %v\n%v", k, got, g.st.Recovery())
				case !slices.Equal(got, before):
					t.Fatalf("step %d: %v\nis neither %v\nnor %v\n%v", k, got, before, after, g.st.Recovery())
				}
				if err := g.uncollected(); err != nil {
					t.Fatalf("step %d: %v", k, err)
				}
				g.scribble(50) // the store works as before
				want := g.contents()
				mustCheckpoint(t, g.st, CheckpointOptions{Kind: Snapshot})
				g.fall()
				g.st = open(t, g.opts)
				if got := g.contents(); !slices.Equal(got, want) {
					t.Fatalf("step %d, and a checkpoint after it: %v, want %v", k, got, want)
				}
				closeAll(t, g.st)
				return failed
			})
		})
	}
}

// TestFailingAtEveryStep fails each step of a checkpoint once. The store continues, no files
// are left behind, and a later checkpoint succeeds. Failed writes of the log are permanent and
// not tested here.
func TestFailingAtEveryStep(t *testing.T) {
	for name, work := range checkpointed {
		t.Run(name, func(t *testing.T) {
			every(t, func(k int64) bool {
				g := newStage(t, small(nil, 8, 8))
				g.scribble(150)
				if err := g.st.Commit(context.Background()); err != nil { // so that part of the log can be compacted
					t.Fatal(err)
				}
				g.scribble(150)
				mustCheckpoint(t, g.st, CheckpointOptions{Kind: Snapshot})
				g.scribble(20)
				before := g.contents()
				g.dev.arm(k, false)
				err := work(context.Background(), g.st)
				failed := g.dev.spent()
				if !failed { // no operation failed, and none may fail from here on
					g.dev.arm(never, false)
				}
				if err != nil && (!errors.Is(err, errDying) || !strings.Contains(err.Error(), "object") &&
					!strings.Contains(err.Error(), "manifest") && !strings.Contains(err.Error(), "hlog") && !strings.Contains(err.Error(), "sync")) {
					t.Errorf("step %d: an error that does not name what failed: %v", k, err)
				}
				if got := g.contents(); !slices.Equal(got, before) {
					t.Fatalf("step %d: %v, want %v", k, got, before)
				}
				if err != nil && !strings.Contains(err.Error(), "manifest") {
					if err := g.uncollected(); err != nil {
						t.Errorf("step %d: left behind by a checkpoint that failed: %v", k, err)
					}
				}
				if err := g.st.Commit(context.Background()); err != nil { // the log has failed
					g.fall()
					return failed
				}
				g.scribble(20)
				want := g.contents()
				mustCheckpoint(t, g.st, CheckpointOptions{Kind: logKinds[k%3]})
				if err := g.uncollected(); err != nil {
					t.Errorf("step %d: %v", k, err)
				}
				g.fall()
				g.st = open(t, g.opts)
				if got := g.contents(); !slices.Equal(got, want) {
					t.Fatalf("step %d: recovered %v, want %v\n%v", k, got, want, g.st.Recovery())
				}
				closeAll(t, g.st)
				return failed
			})
		})
	}
}

// TestDyingWhileOpening fails the power at every step of the recovery of the newest state and
// of an older one. The recovery can be repeated. Without a name, it recovers one of the two.
func TestDyingWhileOpening(t *testing.T) {
	for _, kind := range logKinds {
		for _, name := range []string{"", "older", "older, then newest"} {
			t.Run(fmt.Sprintf("%v/%s", kind, name), func(t *testing.T) {
				name, then, _ := strings.Cut(name, ", then ")
				every(t, func(k int64) bool {
					g := newStage(t, small(nil, 8, 8))
					mustCheckpoint(t, g.st, CheckpointOptions{Kind: Snapshot})
					g.scribble(100)
					mustCheckpoint(t, g.st, CheckpointOptions{Kind: kind, Name: "older"})
					want := g.contents()
					g.scribble(100)
					if name == "" {
						mustCheckpoint(t, g.st, CheckpointOptions{Kind: kind})
						want = g.contents()
					} else if err := g.st.Commit(context.Background()); err != nil {
						t.Fatal(err)
					}
					newest := g.contents()
					g.scribble(200)
					g.fall()
					g.opts.Recover = name
					g.dev.arm(k, true)
					st, err := Open(g.opts)
					failed := g.dev.spent()
					if g.st = st; err != nil && !errors.Is(err, errDying) {
						t.Fatalf("step %d: %v", k, err)
					}
					g.fall()
					if then != "" {
						g.opts.Recover = ""
					}
					g.st = open(t, g.opts)
					if got := g.contents(); !slices.Equal(got, want) && (then == "" || !slices.Equal(got, newest)) {
						t.Fatalf("step %d: recovered %v, want %v\n%v", k, got, want, g.st.Recovery())
					}
					if err := g.uncollected(); err != nil {
						t.Errorf("step %d: %v", k, err)
					}
					closeAll(t, g.st)
					return failed
				})
			})
		}
	}
}

// TestRestoringToAFullDisk fails the writes of a recovery. The error does not blame the
// checkpoint.
func TestRestoringToAFullDisk(t *testing.T) {
	disk := device.NewMemory()
	w, err := manifest.CreateObject(t.Context(), disk, "object", manifest.LogChunk)
	if err != nil {
		t.Fatal(err)
	}
	for addr := int64(0); addr < 8*minBlock; addr += 2 * minBlock { // every other block
		if err := w.Add(addr, 1, make([]byte, minBlock)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	every(t, func(k int64) bool {
		dev := newDying(disk)
		dev.arm(k, true)
		_, err := restore.Snapshots(dev, []manifest.LogPart{{Object: "object", To: 8 * minBlock}}, 0, func(int64) error { return nil })
		if err != nil && (!errors.Is(err, errDying) || errors.Is(err, ErrCorrupt)) {
			t.Errorf("write %d: %v", k, err)
		}
		return dev.spent()
	})
}
