package device_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// Close waits neither for a dropped tier that is stuck, nor for one that becomes stuck. Their
// queues are closed when the writes end.
func TestCloseLeavesStuckTiers(t *testing.T) {
	for name, pages := range map[string]int{"dropped": 4, "not dropped yet": 2} {
		t.Run(name, func(t *testing.T) {
			defer testrun.NoLeaks(t)
			faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
			stuck, last := &closes{Device: faulty}, &closes{Device: device.NewMemory()}
			d := device.NewTieredWith(device.TieredOptions{
				Names: []string{"first", "stuck", "last"}, CommitPoint: 1, Backlog: 12,
				BacklogPolicy: device.BacklogDrop, CloseWait: time.Millisecond, Logger: quiet,
			}, device.NewNull(), stuck, last)
			if err := d.Start(0); err != nil {
				t.Fatal(err)
			}
			var queues [2]device.Queue
			for n := range queues {
				q, err := d.NewQueue(8)
				if err != nil {
					t.Fatal(err)
				}
				queues[n] = q
				for i := range pages {
					if err := (&bench{t, q}).writeAll("abcd", int64(4*(n*pages+i))); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, q := range queues {
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			}
			if m := d.Metrics()[1]; m.Healthy || m.Backlog == 0 {
				t.Errorf("a tier that was left: %+v", m)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if stuck.n.Load() != 0 || last.n.Load() != 1 {
				t.Fatalf("the stuck tier was closed %d times, the last %d", stuck.n.Load(), last.n.Load())
			}
			faulty.Release()
			testrun.Until(t, "the tier is closed and the backlog written", func() bool { return stuck.n.Load() == 1 && d.Metrics()[1].Backlog == 0 })
		})
	}
}

// Close submits the writes that a tier's full queue had no room for, and returns.
func TestCloseEndsWhatIsLate(t *testing.T) {
	const pages = 5
	faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{
		CommitPoint: 1, Backlog: 4 * pages, BacklogPolicy: device.BacklogDrop, Logger: quiet,
	}, device.NewNull(), narrow{faulty}, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	for i := range int64(pages) {
		if err := b.writeAll("abcd", 4*i); err != nil {
			t.Fatal(err)
		}
	}
	faulty.Set(device.FaultyOptions{})
	faulty.Release()
	if err := b.q.Close(); err != nil {
		t.Error(err)
	}
	if m := d.Metrics()[1]; !m.Healthy || m.Backlog != 0 || m.BytesWritten != 4*pages {
		t.Errorf("%+v", m)
	}
}

// closes counts calls of Close.
type closes struct {
	device.Device
	n atomic.Int64
}

func (c *closes) Close() error {
	c.n.Add(1)
	return c.Device.Close()
}

// Close does not wait for a tier that is stuck in a refill, whether it is refilled or read
// from.
func TestCloseLeavesStuckRefills(t *testing.T) {
	for name, stuckAt := range map[string]int{"filled": 0, "read": 1} {
		t.Run(name, func(t *testing.T) {
			defer testrun.NoLeaks(t)
			var tiers [3]device.Device
			var faulty [2]*device.Faulty
			var asked [2]*asks
			for i := range faulty {
				faulty[i] = device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
				asked[i] = &asks{Device: faulty[i]}
				tiers[i] = asked[i]
			}
			tiers[2] = device.NewMemory()
			d := device.NewTieredWith(device.TieredOptions{RetryAfter: 1, CloseWait: time.Millisecond, Logger: quiet}, tiers[:]...)
			b := begun(t, d)
			faulty[0].Set(device.FaultyOptions{FailWrite: 1})
			if err := b.writeAll("abcd", 0); err != nil {
				t.Fatal(err)
			}
			faulty[0].Set(device.FaultyOptions{})
			asked[stuckAt].stick.Store(faulty[stuckAt]) // by the refill's operation
			if err := b.writeAll("efgh", 4); err != nil {
				t.Fatal(err)
			}
			testrun.Until(t, "the tier is stuck", func() bool { return asked[stuckAt].stuck.Load() })
			if err := errors.Join(b.q.Close(), d.Close()); err != nil {
				t.Error(err)
			}
			if asked[stuckAt].closed.Load() {
				t.Error("the stuck tier was closed with something pending")
			}
			faulty[stuckAt].Release()
			testrun.Until(t, "the stuck tier is closed", func() bool { return asked[stuckAt].closed.Load() })
		})
	}
}

// asks is a device that gets stuck at the first operation on address 0 once stick is set, and
// whose queues wait for stuck operations.
type asks struct {
	device.Device
	stick         atomic.Pointer[device.Faulty]
	stuck, closed atomic.Bool
	one           sync.Mutex // operations start one after another, so that no other one gets stuck
}

func (a *asks) Close() error {
	a.closed.Store(true)
	return a.Device.Close()
}

func (a *asks) NewQueue(depth int) (device.Queue, error) {
	q, err := a.Device.NewQueue(depth)
	return askedQueue{q, a}, err
}

type askedQueue struct {
	device.Queue
	a *asks
}

func (q askedQueue) Read(dst []byte, addr int64, tag uint64) error {
	return q.stick(addr, func() error { return q.Queue.Read(dst, addr, tag) })
}

func (q askedQueue) Write(src []byte, addr int64, tag uint64) error {
	return q.stick(addr, func() error { return q.Queue.Write(src, addr, tag) })
}

func (q askedQueue) Close() error {
	err := q.Wait(context.Background())
	return errors.Join(err, q.Queue.Close())
}

func (q askedQueue) stick(addr int64, do func() error) error {
	q.a.one.Lock()
	defer q.a.one.Unlock()
	faulty := q.a.stick.Load()
	if addr != 0 || faulty == nil || q.a.stuck.Load() {
		return do()
	}
	faulty.Set(device.FaultyOptions{Stuck: 1})
	err := do()
	faulty.Set(device.FaultyOptions{})
	q.a.stuck.Store(true)
	return err
}

// A tier whose restart takes long delays neither writes nor Close.
func TestSlowStart(t *testing.T) {
	defer testrun.NoLeaks(t)
	faulty, slow, d := newSlowStart(time.Millisecond)
	b := begun(t, d)
	addr := int64(0)
	write := func() {
		t.Helper()
		if err := b.writeAll("abcd", addr); err != nil {
			t.Fatal(err)
		}
		addr += 4
	}
	fail := func() {
		faulty.Set(device.FaultyOptions{WriteError: 1})
		write()
		faulty.Set(device.FaultyOptions{})
		slow.slow.Store(true)
	}
	fail()
	write() // triggers the restart
	end := testrun.Receive(t, "the tier is started again", slow.asked)
	for range 3 {
		write()
	}
	if m := d.Metrics()[0]; m.Healthy || m.Restarts != 0 {
		t.Errorf("a tier that is being started: %+v", m)
	}
	slow.slow.Store(false)
	close(end)
	testrun.Until(t, "the tier is healthy", func() bool { return d.Metrics()[0].Healthy })
	if m := d.Metrics()[0]; m.Begin != addr || m.Restarts != 1 {
		t.Errorf("after writes up to %d: %+v", addr, m)
	}
	write()
	b.wantRead("abcd", addr-4, 0)
	b.wantRead("abcd", addr-8, 1)

	fail()
	write()
	end = testrun.Receive(t, "the tier is started again", slow.asked)
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if slow.n.Load() != 0 {
		t.Error("closed while it is being started")
	}
	close(end)
	testrun.Until(t, "the slow tier is closed", func() bool { return slow.n.Load() == 1 })
}

// begun starts tiers and opens a queue. The test closes both.
func begun(t *testing.T, d *device.Tiered) *bench {
	t.Helper()
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, q}
}

// newSlowStart returns two tiers. The first can fail, and its start can be delayed.
func newSlowStart(closeWait time.Duration) (*device.Faulty, *slowStart, *device.Tiered) {
	faulty := device.NewFaulty(volatile(), device.FaultyOptions{})
	slow := &slowStart{closes: closes{Device: faulty}, held: held{asked: make(chan chan struct{})}}
	opts := device.TieredOptions{RetryAfter: 1, CloseWait: closeWait, RefillRate: -1, Logger: quiet}
	return faulty, slow, device.NewTieredWith(opts, slow, device.NewMemory())
}

// slowStart is a device whose Start signals the test and then blocks, if slow is set.
type slowStart struct {
	closes
	held
}

// A Refiller that was being started learns what was written meanwhile.
func TestStartedRefillerLearnsWhatItMissed(t *testing.T) {
	defer testrun.NoLeaks(t)
	first := &slowRefiller{lossy: newLossy(1, 100, 100), held: held{asked: make(chan chan struct{})}}
	d := device.NewTieredWith(device.TieredOptions{RetryAfter: 1, RefillRate: -1, Logger: quiet}, first, device.NewMemory())
	b := begun(t, d)
	b.write("aaaa", 0)
	first.fail(1, device.ErrFault)
	b.write("bbbb", 4)
	first.fail(0, nil)
	first.slow.Store(true)
	b.write("cccc", 8) // starts the tier at 12
	end := testrun.Receive(t, "the tier is started again", first.asked)
	b.write("dddd", 12)
	b.write("eeee", 16)
	close(end)
	testrun.Until(t, "the tier is healthy", func() bool { return d.Metrics()[0].Healthy })
	b.write("ffff", 20)
	b.wantRead("eeee", 16, 1)
	b.wantRead("ffff", 20, 0)
	if got := fmt.Sprint(first.missed); got != "[[12 20]]" {
		t.Errorf("it was told %s", got)
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// slowRefiller is slowStart for a Refiller.
type slowRefiller struct {
	*lossy
	held
}

func (s *slowRefiller) Start(tail int64) error {
	s.hold()
	return s.lossy.Start(tail)
}

func (s *slowStart) Start(tail int64) error {
	s.hold()
	return s.closes.Start(tail)
}

// held holds calls while slow is set: each signals the test and then blocks.
type held struct {
	slow  atomic.Bool
	asked chan chan struct{}
}

func (h *held) hold() {
	if h.slow.Load() {
		end := make(chan struct{})
		h.asked <- end
		<-end
	}
}

// A detached tier that is stuck does not delay Sync, and leaves the set.
func TestSyncLeavesStuckTiers(t *testing.T) {
	defer testrun.NoLeaks(t)
	stuck := &slowSync{closes: closes{Device: device.NewMemory()}, end: make(chan struct{})}
	last := device.NewMemory()
	d := device.NewTieredWith(device.TieredOptions{
		CommitPoint: 1, BacklogPolicy: device.BacklogDrop, CloseWait: time.Millisecond, RetryAfter: time.Hour, Logger: quiet,
	}, device.NewNull(), stuck, last)
	b := begun(t, d)
	if err := errors.Join(b.writeAll("abcd", 0), d.Sync()); err != nil {
		t.Fatal(err)
	}
	if m := d.Metrics()[1]; m.Healthy || !errors.Is(m.Reason, device.ErrBehind) {
		t.Errorf("%+v", m)
	}
	if floors, err := last.ReadMeta("tiered.floors"); err != nil || !strings.Contains(string(floors), fmt.Sprint(int64(math.MaxInt64))) {
		t.Errorf("floors %s, %v", floors, err)
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if stuck.n.Load() != 0 {
		t.Error("closed while it syncs")
	}
	close(stuck.end)
	testrun.Until(t, "the stuck tier is closed", func() bool { return stuck.n.Load() == 1 })
}

// slowSync is a device whose Sync blocks.
type slowSync struct {
	closes
	end chan struct{}
}

func (s *slowSync) Sync() error {
	<-s.end
	return s.closes.Sync()
}
