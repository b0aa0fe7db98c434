package hlog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/testrun"
)

// TestResize changes the budget while sessions write records and read them back.
func TestResize(t *testing.T) {
	const page, most = 4096, 32
	dev := device.NewMemory()
	if err := dev.Start(FirstAddress); err != nil {
		t.Fatal(err)
	}
	table := epoch.New()
	l, err := Open(Config{
		Device: dev, Epoch: table, Layout: FixedLayout(8, 8), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Memory: 5 * page, MaxMemory: most * page, PageSize: page,
	})
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range uint64(2) {
		wg.Go(func() {
			handle := table.Register()
			defer handle.Unregister()
			addrs := map[uint64]int64{}
			for n := w; !stop.Load(); n += 2 {
				addr, err := add(l, handle, n, 0)
				if err != nil {
					t.Error(err)
					return
				}
				addrs[n%1000] = addr
				handle.Enter()
				for _, n := range []uint64{n, n - n%100} {
					addr, ok := addrs[n%1000]
					if ok && addr >= l.Head() {
						if got := l.At(addr).Word0(); got%1000 != n%1000 {
							t.Errorf("record %d at %d has key %d", n, addr, got)
							stop.Store(true)
						}
					}
				}
				handle.Leave()
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		frames := MinFrames + rng.Int64N(most-MinFrames+1)
		if err := l.Resize(t.Context(), frames*page+rng.Int64N(page)); err != nil {
			t.Error(err)
		}
		if l.Budget() != frames*page {
			t.Errorf("budget of %d bytes for %d frames", l.Budget(), frames)
		}
		tail := l.tailPage() // loaded first, because head follows it; a new page may not be open while Tail is at its beginning
		if resident := tail - l.Head()>>l.pageBits; resident >= frames {
			t.Errorf("%d pages in memory, %d allowed", resident+1, frames)
		}
	}
	for _, bad := range []int64{0, -1, MinFrames*page - 1, most*page + page} {
		before := l.Budget()
		if err := l.Resize(t.Context(), bad); err == nil || l.Budget() != before {
			t.Errorf("Resize(%d): %v, budget %d", bad, err, l.Budget())
		}
	}
	if err := l.Resize(t.Context(), most*page); err != nil {
		t.Error(err)
	}
	for tail := l.Tail(); !stop.Load() && l.Tail() < tail+2*most*page; { // fills the log
		if err := l.Persist(context.Background(), l.SafeReadOnly()); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := l.Resize(t.Context(), MinFrames*page); err != nil {
		t.Error(err)
	}
	if n, err := mem.ResidentOf(l.ring); n > MinFrames*page || err != nil {
		t.Errorf("%d bytes resident of %d, %v", n, MinFrames*page, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Resize(t.Context(), 8*page); !errors.Is(err, ErrClosed) {
		t.Errorf("resizing a closed log: %v", err)
	}
}

// TestResizeWithoutSpace shrinks a log whose device turns out to be full. The log keeps its budget, and
// shrinks when there is space.
func TestResizeWithoutSpace(t *testing.T) {
	dev := &crowded{Device: device.NewMemory()}
	l, table := openLog(t, dev, FirstAddress, FirstAddress)
	dev.full.Store(true)
	handle := table.Register()
	defer handle.Unregister()
	for n := uint64(0); l.tailPage() < 5; n++ {
		if _, err := add(l, handle, n, 0); err != nil {
			t.Fatal(err)
		}
	}
	before := l.Budget()
	if err := l.Resize(t.Context(), MinFrames*testPage); !errors.Is(err, device.ErrNoSpace) || l.Budget() != before {
		t.Errorf("%v, and a budget of %d bytes, was %d", err, l.Budget(), before)
	}
	dev.full.Store(false)
	testrun.UntilNil(t, func() error { return l.Resize(t.Context(), MinFrames*testPage) })
}

// While a log shrinks, pages are opened: one for two that are evicted.
func TestResizeLetsAppendsGoOn(t *testing.T) {
	const page, frames = 4096, 16
	l, table, dev := openValve(t, page, frames)
	handle := table.Register()
	n := uint64(0)
	fill := func(until int64) {
		for ; l.tailPage() < until; n++ {
			if _, err := add(l, handle, n, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(frames - 1)
	resized := make(chan error, 1)
	go func() { resized <- l.Resize(t.Context(), MinFrames*page) }()
	testrun.Until(t, "the log is being resized", func() bool { return l.Budget() == MinFrames*page })
	for range 4 {
		dev.open <- struct{}{}
	}
	fill(frames + 1) // so 14 are open: MinFrames, and 12 less 4/2
	select {
	case err := <-resized:
		t.Errorf("resized while %d pages are in memory: %v", frames-2, err)
	default:
	}
	fillPage(l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.WaitForSpace(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("space for more: %v", err)
	}
	close(dev.open)
	if err := testrun.Receive(t, "the log is resized", resized); err != nil {
		t.Error(err)
	}
	if resident := l.tailPage() - l.Head()>>l.pageBits; resident >= MinFrames {
		t.Errorf("%d pages in memory", resident+1)
	}
	handle.Unregister()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A caller that found no room waits for none when another one has opened the next page meanwhile.
func TestWaitForSpaceOnAnOpenedPage(t *testing.T) {
	const page = 4096
	l, _, dev := openValve(t, page, 4)
	fillPage(l)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.WaitForSpace(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("without room: %v", err)
	}
	dev.open <- struct{}{}
	if err := l.WaitForSpace(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := l.Allocate(32); !ok { // by the other caller
		t.Fatal("no page is opened")
	}
	if err := l.WaitForSpace(ended); err != nil {
		t.Errorf("on a page with room: %v", err)
	}
	if fillPage(l) != page/32-1 {
		t.Error("another page was opened")
	}
	close(dev.open)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// fillPage allocates until there is no page for more, and returns how often that succeeded.
func fillPage(l *Log) (n int) {
	for _, ok := l.Allocate(32); ok; _, ok = l.Allocate(32) {
		n++
	}
	return n
}

// openValve opens a log over a valve.
func openValve(t *testing.T, page, frames int) (*Log, *epoch.Table, *valve) {
	t.Helper()
	dev := &valve{Device: device.NewMemory(), open: make(chan struct{}, 100)}
	if err := dev.Start(FirstAddress); err != nil {
		t.Fatal(err)
	}
	table := epoch.New()
	l, err := Open(Config{
		Device: dev, Epoch: table, Layout: FixedLayout(8, 8), Logger: slog.New(slog.DiscardHandler),
		Memory: int64(page * frames), PageSize: page,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, table, dev
}

// valve is a device whose completions pass one for each token of open, and all when it is closed.
type valve struct {
	device.Device
	open chan struct{}
}

func (v *valve) NewQueue(depth int) (device.Queue, error) {
	q, err := v.Device.NewQueue(depth)
	return &valveQueue{q, v.open}, err
}

type valveQueue struct {
	device.Queue
	open chan struct{}
}

func (q *valveQueue) Poll(done []device.Completion) (n int) {
	for ; n < len(done); n++ {
		select {
		case _, token := <-q.open:
			if q.Queue.Poll(done[n:n+1]) == 1 {
				continue
			}
			if token {
				q.open <- struct{}{}
			}
		default:
		}
		return n
	}
	return n
}

// TestCommitDoesNotWaitForTheLastTier: a tier beyond the commit point never completes a write.
// The flusher, which waits for it, must still see commits.
func TestCommitDoesNotWaitForTheLastTier(t *testing.T) {
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	dev := device.NewTieredWith(device.TieredOptions{
		CommitPoint: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, device.NewMemory(), last)
	l, table := openLog(t, dev, FirstAddress, FirstAddress)
	t.Cleanup(last.Release)
	handle := table.Register()
	for n := range uint64(3) {
		if _, err := add(l, handle, n, 0); err != nil {
			t.Fatal(err)
		}
		var tail int64
		table.Exclusive(func() { tail = l.ShiftReadOnly() })
		if err := l.Persist(context.Background(), tail); err != nil {
			t.Fatal(err)
		}
	}
}
