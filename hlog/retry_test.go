package hlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// handClock advances only by pass.
type handClock struct{ passed atomic.Int64 }

func (c *handClock) now() time.Time       { return time.Unix(1e9, c.passed.Load()) }
func (c *handClock) pass(d time.Duration) { c.passed.Add(int64(d)) }

// crowded is a device whose writes fail for lack of space while full is set, or with the error
// why. If late is set, every second Poll returns nothing.
type crowded struct {
	device.Device
	full atomic.Bool
	why  error
	late bool
}

func (d *crowded) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &crowdedQueue{Queue: q, d: d}, err
}

type crowdedQueue struct {
	device.Queue
	d     *crowded
	polls int
}

func (q *crowdedQueue) Write(src []byte, addr int64, tag uint64) error {
	if q.d.full.Load() {
		addr = -1 // the device refuses this address
	}
	return q.Queue.Write(src, addr, tag)
}

func (q *crowdedQueue) Poll(done []device.Completion) int {
	if q.polls++; q.d.late && q.polls%2 > 0 {
		return 0
	}
	n := q.Queue.Poll(done)
	for i := range done[:n] {
		if c := &done[i]; c.Err != nil && !errors.Is(c.Err, device.ErrFault) {
			c.Err = fmt.Errorf("%w: %w", cmp.Or(q.d.why, device.ErrNoSpace), c.Err)
		}
	}
	return n
}

// TestFull: a log whose device is full can be read, and writers get an error. It continues
// once there is space; then the device holds everything that was written in between.
func TestFull(t *testing.T) {
	memory := device.NewMemory()
	plain := &crowded{Device: memory}
	last := &crowded{Device: memory}
	tiered := device.NewTieredWith(device.TieredOptions{CommitPoint: 1}, device.NewMemory(), last)
	for name, tc := range map[string]struct {
		dev  device.Device
		full *atomic.Bool
	}{
		"one device":                        {plain, &plain.full},
		"a last tier beyond the commit one": {tiered, &last.full},
	} {
		t.Run(name, func(t *testing.T) {
			l, table := openLog(t, tc.dev, FirstAddress, FirstAddress)
			handle := table.Register()
			n := uint64(0)
			addresses := make(map[uint64]int64)
			fill := func(pages int) (err error) {
				for range pages * testPage / 24 {
					var addr int64
					if addr, err = add(l, handle, n, 0); err != nil {
						return err
					}
					addresses[n] = addr
					n++
				}
				return nil
			}
			for range 3 {
				tc.full.Store(false)
				for err := fill(20); err != nil; err = fill(20) { // writers fail once the log has noticed
					if !errors.Is(err, device.ErrNoSpace) {
						t.Fatal(err)
					}
				}
				tc.full.Store(true)
				if err := fill(1000); !errors.Is(err, device.ErrNoSpace) {
					t.Fatalf("without space: %v", err)
				}
				if err := l.Persist(context.Background(), l.Tail()); !errors.Is(err, device.ErrNoSpace) {
					t.Fatalf("without space: %v", err)
				}
			}
			tc.full.Store(false)
			var tail int64
			table.Exclusive(func() { tail = l.ShiftReadOnly() })
			err := l.Persist(context.Background(), tail)
			for ; err != nil; err = l.Persist(context.Background(), tail) {
				if !errors.Is(err, device.ErrNoSpace) {
					t.Fatal(err)
				}
			}
			w := l.NewWalker(handle)
			defer func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := w.Walk(context.Background(), FirstAddress, l.Settle()); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				found, err := w.Next(context.Background())
				if err != nil || !found {
					t.Fatalf("record %d of %d: %v", i, n, err)
				}
				if at, im := w.Record(); at != addresses[i] || im.Key[0] != byte(i) {
					t.Fatalf("record %d at %d, key %x, want it at %d", i, at, im.Key, addresses[i])
				}
			}
			if l.Head() == FirstAddress {
				t.Error("all of it was in memory")
			}
		})
	}
}

// TestFullBeyondTheCommitPoint: while the last tier is full, the log does not report that it
// is writable again, although the other tiers store every write.
func TestFullBeyondTheCommitPoint(t *testing.T) {
	last := &crowded{Device: device.NewMemory(), late: true}
	dev := device.NewTieredWith(device.TieredOptions{CommitPoint: 1}, device.NewMemory(), last)
	var failed, passed atomic.Int64
	l, table := openLogWith(t, dev, FirstAddress, FirstAddress, Listener{
		Waits: func(err error, _ time.Duration) {
			if err == nil {
				passed.Add(1)
			}
		},
		Failed: func(error) { failed.Add(1) },
	})
	handle := table.Register()
	last.full.Store(true)
	write := func() (err error) {
		for n := uint64(0); n < 1000 && err == nil; n++ {
			_, err = add(l, handle, n, 0)
		}
		return err
	}
	if err := write(); !errors.Is(err, device.ErrNoSpace) {
		t.Fatal(err)
	}
	testrun.Until(t, "a write is repeated", func() bool { return l.Counts().Retries >= 3 })
	if failed, passed := failed.Load(), passed.Load(); failed != 1 || passed != 0 || !l.Counts().Waiting {
		t.Errorf("told %d times that writing has failed, and %d times that it goes on", failed, passed)
	}
	last.full.Store(false)
	for err := write(); err != nil; err = write() {
		if !errors.Is(err, device.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	if passed.Load() != 1 {
		t.Errorf("told %d times that writing goes on", passed.Load())
	}
}

// A full device has what was written before: nothing of that is waited for.
func TestWriteWhatAFullDeviceHas(t *testing.T) {
	dev := &crowded{Device: device.NewMemory()}
	l, table := openLog(t, dev, FirstAddress, FirstAddress)
	handle := table.Register()
	if _, err := add(l, handle, 1, 0); err != nil {
		t.Fatal(err)
	}
	var tail int64
	table.Exclusive(func() { tail = l.ShiftReadOnly() })
	if err := l.Write(t.Context(), tail); err != nil {
		t.Fatal(err)
	}
	dev.full.Store(true)
	if _, err := add(l, handle, 2, 0); err != nil {
		t.Fatal(err)
	}
	table.Exclusive(func() { l.ShiftReadOnly() })
	if err := l.Write(t.Context(), l.Tail()); !errors.Is(err, device.ErrNoSpace) {
		t.Errorf("what it does not have: %v", err)
	}
	if err := l.Write(t.Context(), tail); err != nil {
		t.Errorf("what it has: %v", err)
	}
}

// TestFullThenFailed: another error is permanent, even after the device was full.
func TestFullThenFailed(t *testing.T) {
	faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	dev := &crowded{Device: faulty}
	l, table := openLog(t, dev, FirstAddress, FirstAddress)
	handle := table.Register()
	write := func() (err error) {
		for n := uint64(0); n < 1000 && err == nil; n++ {
			_, err = add(l, handle, n, 0)
		}
		return err
	}
	dev.full.Store(true)
	if err := write(); !errors.Is(err, device.ErrNoSpace) {
		t.Fatal(err)
	}
	faulty.Set(device.FaultyOptions{WriteError: 1})
	dev.full.Store(false)
	for err := write(); ; err = write() {
		if err == nil {
			t.Fatal("writes go well on a device that fails them all")
		}
		if errors.Is(err, device.ErrFault) {
			break
		}
	}
	if l.Counts().Waiting {
		t.Error("the log waits for writes that are not tried again")
	}
}

// TestTransient: while writes fail with transient errors, writers and commits wait, a commit
// until its context ends. All continue when writes succeed.
func TestTransient(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN} {
		t.Run(errno.Error(), func(t *testing.T) {
			dev := &crowded{Device: device.NewMemory(), why: device.MarkTransient(errno)}
			told := make(chan error, 100)
			l, table := openLogBy(t, dev, FirstAddress, FirstAddress, Listener{
				Waits:  func(err error, _ time.Duration) { told <- err },
				Failed: func(err error) { t.Errorf("the log has failed: %v", err) },
			}, new(handClock).now)
			handle := table.Register()
			dev.full.Store(true)
			written := make(chan error, 1)
			go func() { // writes until memory is full, and continues later
				var err error
				for n := uint64(0); n < 40*testPage/24 && err == nil; n++ {
					_, err = add(l, handle, n, 0)
				}
				written <- err
			}()
			if err := testrun.Receive(t, "the log waits", told); !errors.Is(err, errno) {
				t.Fatalf("it waits for %v", err)
			}
			testrun.Until(t, "a write is repeated", func() bool { return l.Counts().Retries >= 2 })
			if !l.Counts().Waiting {
				t.Error("the counts do not say that the log waits")
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- l.Persist(ctx, l.Tail()) }()
			cancel()
			if err := testrun.Receive(t, "the commit ends", ended); !errors.Is(err, context.Canceled) {
				t.Errorf("a commit whose context ends: %v", err)
			}
			if l.Committed() != FirstAddress {
				t.Errorf("committed up to %d, and nothing was written", l.Committed())
			}
			dev.full.Store(false)
			if err := testrun.Receive(t, "the writer goes on", written); err != nil {
				t.Fatalf("a writer: %v", err)
			}
			var tail int64
			table.Exclusive(func() { tail = l.ShiftReadOnly() })
			if err := l.Persist(t.Context(), tail); err != nil {
				t.Fatal(err)
			}
			if err := testrun.Receive(t, "the log goes on", told); err != nil || l.Counts().Waiting {
				t.Errorf("still waiting: %v", err)
			}
		})
	}
}

// TestTransientLasts: if a shortage lasts, writers get an error, and Close ends their waiting.
// The log is writable again when the shortage ends.
func TestTransientLasts(t *testing.T) {
	dev := &crowded{Device: device.NewMemory(), why: device.MarkTransient(syscall.EMFILE)}
	clock, waits := new(handClock), make(chan struct{}, 100)
	l, table := openLogBy(t, dev, FirstAddress, FirstAddress, Listener{
		Waits: func(err error, _ time.Duration) {
			if err != nil {
				waits <- struct{}{}
			}
		},
	}, clock.now)
	handle := table.Register()
	dev.full.Store(true)
	n := uint64(0)
	write := func(pages int) (err error) {
		for end := n + uint64(pages*testPage/24); n < end && err == nil; n++ {
			_, err = add(l, handle, n, 0)
		}
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- write(40) }()
	testrun.Receive(t, "the log waits", waits)
	retries := l.Counts().Retries
	testrun.Until(t, "a write is repeated", func() bool { return l.Counts().Retries > retries })
	select {
	case err := <-failed:
		t.Fatalf("a writer, before device.RetryTime has passed: %v", err)
	default:
	}
	clock.pass(device.RetryTime)
	if err := testrun.Receive(t, "the writer fails", failed); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("a writer: %v", err)
	}
	dev.full.Store(false)
	testrun.Until(t, "the log can be written again", func() bool {
		err := write(40)
		if err != nil && !errors.Is(err, syscall.EMFILE) {
			t.Fatal(err)
		}
		return err == nil
	})
	dev.full.Store(true)
	exhaust := func() { // writes until no page can be evicted
		testrun.Until(t, "no page can be evicted", func() bool {
			for ok := true; ok; {
				handle.Enter()
				_, ok = l.Allocate(l.layout.Size(8, 8, false))
				handle.Leave()
			}
			return l.safeHead.load()>>l.pageBits >= l.released.load()>>l.pageBits
		})
	}
	exhaust()
	// At a retry no write that began before the device was full is pending.
	retries = l.Counts().Retries
	testrun.Until(t, "a write is repeated", func() bool { return l.Counts().Retries > retries })
	exhaust()
	written := make(chan error, 1)
	go func() { written <- l.WaitForSpace(context.Background()) }()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := testrun.Receive(t, "the writer ends", written); !errors.Is(err, ErrClosed) {
		t.Errorf("a writer of a closed log: %v", err)
	}
}

// TestSkip: a log whose device is full goes on at its begin, above what could not be written, once
// it is emptied. The device then needs none of what was there before.
func TestSkip(t *testing.T) {
	memory := device.NewMemory()
	dev := &crowded{Device: memory}
	l, table := openLog(t, dev, FirstAddress, FirstAddress)
	handle := table.Register()
	fill := func(n int) (err error) {
		for i := 0; i < n && err == nil; i++ {
			_, err = add(l, handle, uint64(i), 0)
		}
		return err
	}
	for range 3 {
		dev.full.Store(true)
		if err := fill(1e6); !errors.Is(err, device.ErrNoSpace) {
			t.Fatalf("without space: %v", err)
		}
		var begin int64
		table.Exclusive(func() { begin = l.Empty() })
		if err := l.Skip(t.Context(), begin); err != nil {
			t.Fatal(err)
		}
		if got := memory.Begin(); got != begin || l.Err() != nil || l.Committed() != begin {
			t.Fatalf("the device begins at %d, the log is written up to %d, want %d; %v", got, l.Committed(), begin, l.Err())
		}
		dev.full.Store(false)
		if err := fill(200); err != nil {
			t.Fatalf("with space: %v", err)
		}
		var tail int64
		table.Exclusive(func() { tail = l.ShiftReadOnly() })
		if err := l.Persist(t.Context(), tail); err != nil {
			t.Fatal(err)
		}
		w := l.NewWalker(handle)
		n := 0
		err := w.Walk(context.Background(), begin, l.Settle())
		for found := err == nil; found; n++ {
			if found, err = w.Next(context.Background()); !found {
				break
			}
			if _, im := w.Record(); im.Key[0] != byte(n) {
				t.Fatalf("record %d has key %x", n, im.Key)
			}
		}
		if err = errors.Join(err, w.Close()); err != nil || n != 200 {
			t.Fatalf("%d records, %v", n, err)
		}
	}
	if err := l.Skip(t.Context(), l.Block(l.Begin())); err != nil { // nothing fails
		t.Error(err)
	}
	if err := fill(1000); err != nil {
		t.Error(err)
	}
}
