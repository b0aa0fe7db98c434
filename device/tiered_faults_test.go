package device_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// These are the known faults of FASTER's tiered storage (A51), each with a test that would
// detect it here.

// lazy is a device that works only when polled, and carries out the last operation first.
type lazy struct{ device.Device }

type lazyQueue struct {
	device.Queue
	held []func() error
}

func (d lazy) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &lazyQueue{Queue: q}, err
}

func (q *lazyQueue) Write(src []byte, addr int64, tag uint64) error {
	q.held = append(q.held, func() error { return q.Queue.Write(src, addr, tag) })
	return nil
}

func (q *lazyQueue) Poll(done []device.Completion) int {
	if n := len(q.held); n > 0 {
		write := q.held[n-1]
		q.held = q.held[:n-1]
		if errors.Join(write(), q.Submit()) != nil {
			panic("a memory takes every write")
		}
	}
	return q.Queue.Poll(done)
}

// Writes and truncations wait for the tiers they went to, not for a fixed number of tiers.
func TestFaultWaitsForTiersNotWritten(t *testing.T) {
	for _, down := range []int{0, 1} {
		faulty := []*device.Faulty{
			device.NewFaulty(volatile(), device.FaultyOptions{}), device.NewFaulty(volatile(), device.FaultyOptions{}),
		}
		for commit := range 4 {
			d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: commit, Logger: quiet},
				faulty[0], faulty[1], device.NewMemory()))
			faulty[down].Set(device.FaultyOptions{Down: true})
			b := newBench(t, d)
			for i := range 3 {
				c := b.write("aaaa", int64(4*i))
				if c.Event == device.Committed {
					c = b.next()
				}
				if c.Err != nil || c.Event == device.Committed {
					t.Errorf("tier %d down, commit point %d: %+v", down, commit, c)
				}
			}
			if err := errors.Join(d.Truncate(4), d.Sync()); err != nil {
				t.Error(err)
			}
			b.wantRead("aaaa", 4, uint8(1-down))
			faulty[down].Set(device.FaultyOptions{})
		}
	}
}

// A failed write reports the error of every tier, once.
func TestFaultOnlyTheLastError(t *testing.T) {
	bad := func() device.Device {
		return device.NewFaulty(device.NewMemory(), device.FaultyOptions{WriteError: 1})
	}
	d := started(t, device.NewTieredWith(device.TieredOptions{Names: []string{"one", "two", "three"}, Logger: quiet}, bad(), bad(), bad()))
	err := newBench(t, d).write("aaaa", 0).Err
	if !errors.Is(err, device.ErrFault) {
		t.Fatalf("%v", err)
	}
	for _, name := range []string{"tier one:", "tier two:", "tier three:"} {
		if strings.Count(err.Error(), name) != 1 {
			t.Errorf("%q is not once in\n%v", name, err)
		}
	}
	for i, m := range d.(*device.Tiered).Metrics() {
		if m.Reason == nil || m.WriteErrors != 1 {
			t.Errorf("tier %d: %+v", i, m)
		}
	}
}

// A read that all tiers fail reports all errors, too. The last tier stays in the set, and
// later reads succeed.
func TestEveryTierFailsReads(t *testing.T) {
	var tiers []*device.Faulty
	for range 3 {
		tiers = append(tiers, device.NewFaulty(device.NewMemory(), device.FaultyOptions{}))
	}
	d := started(t, device.NewTieredWith(device.TieredOptions{Names: []string{"one", "two", "three"}, RefillRate: -1, Logger: quiet},
		tiers[0], tiers[1], tiers[2])).(*device.Tiered)
	b := newBench(t, d)
	b.write("aaaa", 0)
	for _, tier := range tiers {
		tier.Set(device.FaultyOptions{ReadError: 1})
	}
	const reads = 100
	for n := range reads {
		_, c := b.read(4, 0)
		if !errors.Is(c.Err, device.ErrFault) || strings.Count(c.Err.Error(), "tier three:") != 1 {
			t.Fatalf("read %d: %v", n, c.Err)
		}
		if n == 0 && (strings.Count(c.Err.Error(), "tier one:") != 1 || strings.Count(c.Err.Error(), "tier two:") != 1) {
			t.Errorf("not all are told of in\n%v", c.Err)
		}
	}
	for _, tier := range tiers {
		tier.Set(device.FaultyOptions{})
	}
	b.wantRead("aaaa", 0, 2)
	m := d.Metrics()
	if m[0].Healthy || m[1].Healthy || !m[2].Healthy || m[2].ReadErrors != reads || m[2].FallThroughs != reads || m[2].Hits != 1 {
		t.Errorf("%+v", m)
	}
}

// No tier reads a buffer after the Released event: its bytes may then change.
func TestFaultBufferIsReused(t *testing.T) {
	for name, opts := range map[string]device.TieredOptions{
		"wait": {CommitPoint: 1},
		"drop": {CommitPoint: 1, BacklogPolicy: device.BacklogDrop},
	} {
		t.Run(name, func(t *testing.T) {
			opts.Logger = quiet
			slow := device.NewMemory()
			d := started(t, device.NewTieredWith(opts, device.NewNull(), lazy{slow}, device.NewMemory()))
			b := newBench(t, d)
			const n = 12
			src := make([]byte, 4)
			for i := range n {
				copy(src, strings.Repeat(string(rune('a'+i)), 4))
				if err := b.q.Write(src, int64(4*i), 1); err != nil {
					t.Fatal(err)
				}
				for c := b.next(); c.Event == device.Committed; c = b.next() {
					continue
				}
				copy(src, "????")
			}
			for d.(*device.Tiered).Metrics()[1].Backlog > 0 {
				b.q.Poll(make([]device.Completion, 1))
			}
			for i := range n {
				b.wantRead(strings.Repeat(string(rune('a'+i)), 4), int64(4*i), 1)
			}
		})
	}
}

// After a restart a volatile tier answers no read, not even at the beginning of the log.
func TestFaultReadsGoToAnEmptyTier(t *testing.T) {
	last := device.NewMemory()
	d := started(t, device.NewTiered(volatile(), last))
	b := newBench(t, d)
	b.write("aaaabbbb", 0)
	b.wantRead("bbbb", 4, 0)
	if err := errors.Join(d.Sync(), b.q.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, startedAt(t, device.NewTiered(volatile(), last.Reopen()), 8))
	b.wantRead("aaaa", 0, 1)
	b.wantRead("bbbb", 4, 1)
	b.write("cccc", 8)
	b.wantRead("cccc", 8, 0)
}

// A tier makes progress even if no read goes to it, and may refuse operations beyond its
// capacity (see also TestTierIsFull).
func TestFaultInnerTiersAreNotPolled(t *testing.T) {
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet},
		volatile(), lazy{volatile()}, lazy{narrow{device.NewMemory()}}))
	b := newBench(t, d)
	const n = 8
	for i := range n {
		if err := b.q.Write([]byte("aaaa"), int64(4*i), uint64(100+i)); err != nil {
			t.Fatal(err)
		}
	}
	released, end := 0, time.Now().Add(testrun.Patience(testrun.Bound))
	for i := 0; released < n; i++ {
		// Reads of the first tier only, without a Wait for the others.
		if err := b.q.Read(make([]byte, 4), 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := b.q.Submit(); err != nil {
			t.Fatal(err)
		}
		var done [4]device.Completion
		for _, c := range done[:b.q.Poll(done[:])] {
			if c.Err != nil {
				t.Fatalf("%+v", c)
			}
			if c.Event == device.Released || c.Event == device.Done && c.Tag >= 100 {
				released++
			}
		}
		if time.Now().After(end) {
			t.Fatalf("after %d polls %d of %d writes are released: %+v", i, released, n, d.(*device.Tiered).Metrics())
		}
		runtime.Gosched()
	}
}
