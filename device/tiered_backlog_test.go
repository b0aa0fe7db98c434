package device_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/device"
)

// writeAll writes to the end of its events, and returns the error of the last one.
func (b *bench) writeAll(s string, addr int64) error {
	b.t.Helper()
	c := b.write(s, addr)
	if c.Event == device.Committed {
		c = b.next()
	}
	return c.Err
}

// until waits for what others do in the background.
func until(t *testing.T, what func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !what() {
		if ctx.Err() != nil {
			t.Fatal("waited for nothing")
		}
		runtime.Gosched()
	}
}

// Up to its limit a slow tier holds up nobody; then writes wait for it.
func TestBacklogWait(t *testing.T) {
	for _, slow := range []int{1, 2} {
		tiers := []device.Device{volatile(), volatile(), device.NewMemory()}
		stuck := device.NewFaulty(tiers[slow], device.FaultyOptions{Stuck: 1})
		tiers[slow] = stuck
		d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Backlog: 12, Logger: quiet}, tiers...)).(*device.Tiered)
		b := newBench(t, d)
		for i := range 3 {
			if c := b.write("aaaa", int64(4*i)); c.Event != device.Committed || c.Err != nil {
				t.Fatalf("write %d: %+v", i, c)
			}
		}
		if m := d.Metrics()[slow]; m.Backlog != 12 || !m.Healthy {
			t.Errorf("%+v", m)
		}
		if err := b.q.Write([]byte("aaaa"), 12, 1); !errors.Is(err, device.ErrQueueFull) {
			t.Fatalf("beyond the limit: %v", err)
		}
		b.wantRead("aaaa", 8, 0)
		stuck.Set(device.FaultyOptions{})
		stuck.Release()
		for range 3 {
			if c := b.next(); c.Event != device.Released || c.Err != nil {
				t.Errorf("%+v", c)
			}
		}
		// However large, one write at a time goes through.
		if err := b.writeAll(strings.Repeat("b", 100), 12); err != nil {
			t.Error(err)
		}
		if m := d.Metrics()[slow]; m.Backlog != 0 || m.BytesWritten != 112 {
			t.Errorf("%+v", m)
		}
	}
}

// A tier that is dropped comes back, and is given all that it lacks.
func TestBacklogDrop(t *testing.T) {
	slow := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	var events []string
	d := started(t, device.NewTieredWith(device.TieredOptions{
		Names: []string{"first", "slow", "last"}, CommitPoint: 1, RetryAfter: 1, Backlog: 12, BacklogPolicy: device.BacklogDrop,
		Logger: quiet, OnEvent: func(e device.TierEvent) { events = append(events, e.String()) },
	}, device.NewNull(), slow, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	want := func(tier uint8, pages ...string) {
		t.Helper()
		for i, page := range pages {
			b.wantRead(page, int64(4*i), tier)
		}
	}
	for i, page := range []string{"aaaa", "bbbb", "cccc"} {
		if err := b.writeAll(page, int64(4*i)); err != nil {
			t.Fatal(err)
		}
	}
	// What is on its way may be there: but nobody knows.
	want(2, "aaaa", "bbbb", "cccc")
	if m := d.Metrics()[1]; m.Backlog != 12 || !m.Healthy {
		t.Errorf("%+v", m)
	}
	if err := b.writeAll("dddd", 12); err != nil {
		t.Fatal(err)
	}
	if m := d.Metrics()[1]; m.Healthy || !errors.Is(m.Reason, device.ErrBehind) {
		t.Errorf("the tier that is too slow: %+v", m)
	}
	want(2, "aaaa", "bbbb", "cccc", "dddd")

	slow.Set(device.FaultyOptions{})
	slow.Release()
	until(t, func() bool { b.q.Poll(make([]device.Completion, 1)); return d.Metrics()[1].Backlog == 0 })
	if err := errors.Join(b.writeAll("eeee", 16), b.writeAll("ffff", 20)); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		b.q.Poll(make([]device.Completion, 1))
		m := d.Metrics()[1]
		return m.Missing == 0 && m.Backlog == 0 && m.Healthy && m.Refilled >= 16 // which is counted last
	})
	want(1, "aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff")
	if m := d.Metrics()[1]; m.Restarts != 1 || m.Refilled != 16 || m.Begin != 0 {
		t.Errorf("%+v", m)
	}
	if got := strings.Join(events, "; "); got != "tier 1, slow, failed: device: tier is too far behind: 12 bytes are on their way; tier 1, slow, is back from 16 on" {
		t.Errorf("events %q", got)
	}
}

// Copies of one block that is written again reach a tier in order, even one that does
// last what it was asked first.
func TestBacklogKeepsOrder(t *testing.T) {
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, BacklogPolicy: device.BacklogDrop, Logger: quiet},
		device.NewNull(), lazy{device.NewMemory()}, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	done := make([]device.Completion, 16)
	for _, block := range []string{"a000", "ab00", "abc0", "abcd"} {
		if err := b.q.Write([]byte(block), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.q.Write([]byte("efgh"), 4, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.q.Submit(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { b.q.Poll(done); return d.Metrics()[1].Backlog == 0 })
	b.wantRead("abcdefgh", 0, 1)
}

// logLines collects what is logged.
type logLines struct{ bytes.Buffer }

// leaveBehind writes pages to two tiers and ends everything, without closing anything, when
// the last tier has but the first of them: the others are committed, on their way there, and
// stuck as the options say.
func leaveBehind(t *testing.T, first, last device.Device, begin int64, stuck device.FaultyOptions, pages ...string) {
	t.Helper()
	faulty := device.NewFaulty(last, device.FaultyOptions{})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first, faulty))
	q, err := d.NewQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, q}
	if err := b.writeAll(pages[0], 0); err != nil {
		t.Fatal(err)
	}
	faulty.Set(stuck)
	at := int64(len(pages[0]))
	for _, page := range pages[1:] {
		if c := b.write(page, at); c.Event != device.Committed {
			t.Fatalf("%+v", c)
		}
		at += int64(len(page))
	}
	faulty.Set(device.FaultyOptions{})
	if err := errors.Join(d.Truncate(begin), d.Sync()); err != nil {
		t.Fatal(err)
	}
}

// What had been committed, and was on its way to the last tier when everything ended,
// Start copies there.
func TestCatchUp(t *testing.T) {
	for name, begin := range map[string]int64{"from the beginning": 0, "from a truncation on": 6, "from another one": 9} {
		t.Run(name, func(t *testing.T) {
			first, last := device.NewMemory(), device.NewMemory()
			leaveBehind(t, first, last, begin, device.FaultyOptions{Stuck: 1, LostWrite: 1}, "aaaa", "bbbb", "cccc")
			d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet, RefillRate: -1}, first.Reopen(), last.Reopen())
			if err := d.Start(11); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			newBench(t, startedAt(t, last.Reopen(), 11)).wantRead("aaaabbbbccc"[begin:], begin, 0)
		})
	}
}

// Who only looks at the log has it whole as well, before it is cut off.
func TestCatchUpPrepared(t *testing.T) {
	first, last := device.NewMemory(), device.NewMemory()
	leaveBehind(t, first, last, 0, device.FaultyOptions{Stuck: 1, LostWrite: 1}, "aaaa", "bbbb")
	for _, end := range []int64{8, 6} { // the second time the last tier has all
		d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet, RefillRate: -1}, first.Reopen(), last.Reopen())
		look := func(end int64, tier uint8) {
			q, err := d.NewQueue(1)
			if err != nil {
				t.Fatal(err)
			}
			(&bench{t, q}).wantRead("aaaabbbb"[:end], 0, tier)
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := d.Prepare(end); err != nil {
			t.Fatal(err)
		}
		look(end, 1)
		if err := d.Start(end - 1); err != nil {
			t.Fatal(err)
		}
		look(end-1, 0)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A tier that cannot be prepared, or started, is no tier of a log that was looked at.
func TestPreparedWithoutATier(t *testing.T) {
	last := device.NewMemory()
	if err := newBench(t, started(t, last)).writeAll("aaaabbbb", 0); err != nil {
		t.Fatal(err)
	}
	down := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Down: true})
	d := device.NewTieredWith(device.TieredOptions{Logger: quiet}, down, last)
	if err := d.Prepare(8); err != nil {
		t.Fatal(err)
	}
	newBench(t, startedAt(t, d, 4)).wantRead("aaaa", 0, 1)
}

// Where no other tier has it any more, Start says so and goes on with what there is.
func TestCatchUpInVain(t *testing.T) {
	last := device.NewMemory()
	leaveBehind(t, volatile(), last, 0, device.FaultyOptions{Stuck: 1}, "aaaa", "bbbb")
	var said logLines
	logger := slog.New(slog.NewTextHandler(&said, nil))
	again := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: logger}, volatile(), last.Reopen())
	newBench(t, startedAt(t, again, 8)).wantRead("aaaabbbb", 0, 1)
	if !strings.Contains(said.String(), "from=4 bytes=4") {
		t.Errorf("logged %q", said.String())
	}
}

// An orderly end leaves nothing to catch up with.
func TestNothingToCatchUp(t *testing.T) {
	first, last := device.NewMemory(), device.NewMemory()
	faulty := device.NewFaulty(last, device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first, faulty))
	b := newBench(t, d)
	b.write("aaaa", 0)
	floors := func() string {
		t.Helper()
		data, err := last.ReadMeta("tiered.floors")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if err := d.Sync(); err != nil || floors() != "[0,1]" {
		t.Fatalf("%v, floors %s", err, floors())
	}
	faulty.Release()
	if c := b.next(); c.Event != device.Released {
		t.Fatalf("%+v", c)
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil || floors() != "[0,0]" {
		t.Errorf("%v, floors %s", err, floors())
	}
}

// Close waits neither for a tier that was dropped and is stuck, nor for one that turns out
// to be. What it has open is closed when its writes end.
func TestCloseLeavesStuckTiers(t *testing.T) {
	for name, pages := range map[string]int{"dropped": 4, "not dropped yet": 2} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
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
			until(t, func() bool { return stuck.n.Load() == 1 && d.Metrics()[1].Backlog == 0 })
		})
	}
}

// Close gives a tier what its full queue did not take yet, and ends.
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

// closes counts how often a device is closed.
type closes struct {
	device.Device
	n atomic.Int64
}

func (c *closes) Close() error {
	c.n.Add(1)
	return c.Device.Close()
}

// Close does not wait for a tier that is stuck while it gets back what it lacks, nor for
// one that this is read from.
func TestCloseLeavesStuckRefills(t *testing.T) {
	for name, stuckAt := range map[string]int{"filled": 0, "read": 1} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
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
			if err := d.Start(0); err != nil {
				t.Fatal(err)
			}
			q, err := d.NewQueue(8)
			if err != nil {
				t.Fatal(err)
			}
			b := &bench{t, q}
			faulty[0].Set(device.FaultyOptions{FailWrite: 1})
			if err := b.writeAll("abcd", 0); err != nil {
				t.Fatal(err)
			}
			faulty[0].Set(device.FaultyOptions{})
			asked[stuckAt].stick.Store(faulty[stuckAt]) // at what the refill asks of it
			if err := b.writeAll("efgh", 4); err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { return asked[stuckAt].stuck.Load() })
			if err := errors.Join(q.Close(), d.Close()); err != nil {
				t.Error(err)
			}
			if asked[stuckAt].closed.Load() {
				t.Error("the stuck tier was closed with something under way")
			}
			faulty[stuckAt].Release()
			until(t, func() bool { return asked[stuckAt].closed.Load() })
		})
	}
}

// asks is a device that gets stuck at the first operation on address 0 once stick is set,
// and whose queues wait for what is stuck.
type asks struct {
	device.Device
	stick         atomic.Pointer[device.Faulty]
	stuck, closed atomic.Bool
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

// A tier that takes long to be started again holds nobody up, neither writes nor Close.
func TestSlowStart(t *testing.T) {
	defer goleak.VerifyNone(t)
	faulty := device.NewFaulty(volatile(), device.FaultyOptions{})
	slow := &slowStart{closes: closes{Device: faulty}, asked: make(chan chan struct{})}
	d := device.NewTieredWith(device.TieredOptions{RetryAfter: 1, CloseWait: time.Millisecond, RefillRate: -1, Logger: quiet},
		slow, device.NewMemory())
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, q}
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
	write() // has it started
	end := <-slow.asked
	for range 3 {
		write()
	}
	if m := d.Metrics()[0]; m.Healthy || m.Restarts != 0 {
		t.Errorf("a tier that is being started: %+v", m)
	}
	slow.slow.Store(false)
	close(end)
	until(t, func() bool { write(); return d.Metrics()[0].Healthy })
	if m := d.Metrics()[0]; m.Begin != addr-4 || m.Restarts != 1 {
		t.Errorf("at the write of %d: %+v", addr-4, m)
	}
	b.wantRead("abcd", addr-4, 0)
	b.wantRead("abcd", addr-8, 1)

	fail()
	write()
	end = <-slow.asked
	if err := errors.Join(q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if slow.n.Load() != 0 {
		t.Error("closed while it is being started")
	}
	close(end)
	until(t, func() bool { return slow.n.Load() == 1 })
}

// slowStart is a device whose Start tells and waits, if it is to be slow.
type slowStart struct {
	closes
	slow  atomic.Bool
	asked chan chan struct{}
}

func (s *slowStart) Start(tail int64) error {
	if s.slow.Load() {
		end := make(chan struct{})
		s.asked <- end
		<-end
	}
	return s.closes.Start(tail)
}

// A tier that nobody waits for does not hold up Sync, and is not trusted afterwards.
func TestSyncLeavesStuckTiers(t *testing.T) {
	defer goleak.VerifyNone(t)
	stuck := &slowSync{closes: closes{Device: device.NewMemory()}, end: make(chan struct{})}
	last := device.NewMemory()
	d := device.NewTieredWith(device.TieredOptions{
		CommitPoint: 1, BacklogPolicy: device.BacklogDrop, CloseWait: time.Millisecond, RetryAfter: time.Hour, Logger: quiet,
	}, device.NewNull(), stuck, last)
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join((&bench{t, q}).writeAll("abcd", 0), d.Sync()); err != nil {
		t.Fatal(err)
	}
	if m := d.Metrics()[1]; m.Healthy || !errors.Is(m.Reason, device.ErrBehind) {
		t.Errorf("%+v", m)
	}
	if floors, err := last.ReadMeta("tiered.floors"); err != nil || !strings.Contains(string(floors), fmt.Sprint(int64(math.MaxInt64))) {
		t.Errorf("floors %s, %v", floors, err)
	}
	if err := errors.Join(q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if stuck.n.Load() != 0 {
		t.Error("closed while it syncs")
	}
	close(stuck.end)
	until(t, func() bool { return stuck.n.Load() == 1 })
}

// slowSync is a device whose Sync waits.
type slowSync struct {
	closes
	end chan struct{}
}

func (s *slowSync) Sync() error {
	<-s.end
	return s.closes.Sync()
}
