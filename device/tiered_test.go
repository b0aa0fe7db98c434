package device_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

var quiet = slog.New(slog.DiscardHandler)

// bench is a queue, with methods that run one operation at a time.
type bench struct {
	t testing.TB
	q device.Queue
}

func newBench(t testing.TB, d device.Device) *bench {
	t.Helper()
	q, err := d.NewQueue(16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, q}
}

// next returns the next completion.
func (b *bench) next() device.Completion {
	b.t.Helper()
	if err := b.q.Submit(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.q.Wait(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	var done [1]device.Completion
	if b.q.Poll(done[:]) != 1 {
		b.t.Fatal("Wait returned, and Poll has nothing")
	}
	return done[0]
}

// polled returns a completion that there is without waiting for one.
func (b *bench) polled() (c device.Completion, ok bool) {
	b.t.Helper()
	var done [1]device.Completion
	for range 100 {
		if err := b.q.Submit(); err != nil {
			b.t.Fatal(err)
		}
		if b.q.Poll(done[:]) > 0 {
			return done[0], true
		}
	}
	return c, false
}

func (b *bench) write(s string, addr int64) device.Completion {
	b.t.Helper()
	if err := b.q.Write([]byte(s), addr, 1); err != nil {
		b.t.Fatal(err)
	}
	return b.next()
}

func (b *bench) read(n int, addr int64) (string, device.Completion) {
	b.t.Helper()
	dst := make([]byte, n)
	if err := b.q.Read(dst, addr, 2); err != nil {
		b.t.Fatal(err)
	}
	c := b.next()
	return string(dst), c
}

// wantRead checks the bytes of a read and the tier that answered.
func (b *bench) wantRead(want string, addr int64, tier uint8) {
	b.t.Helper()
	if got, c := b.read(len(want), addr); c.Err != nil || got != want || c.Tier != tier {
		b.t.Errorf("read at %d: %q from tier %d, %v; want %q from tier %d", addr, got, c.Tier, c.Err, want, tier)
	}
}

// started starts a new device and closes it at the end of the test.
func started(t testing.TB, d device.Device) device.Device {
	t.Helper()
	return startedAt(t, d, 0)
}

// startedAt starts a device with a log that ends at tail, and closes it at the end of the
// test.
func startedAt(t testing.TB, d device.Device, tail int64) device.Device {
	t.Helper()
	t.Cleanup(func() { _ = d.Close() }) // a test that checks Close calls it itself
	if err := d.Start(tail); err != nil {
		t.Fatal(err)
	}
	return d
}

func volatile() *device.Memory { return device.NewMemoryWith(device.MemoryOptions{Volatile: true}) }

// TestTierFailsAndComesBack follows one tier out of the set and back.
func TestTierFailsAndComesBack(t *testing.T) {
	first := device.NewFaulty(volatile(), device.FaultyOptions{})
	events := make(chan string, 8)
	d := started(t, device.NewTieredWith(device.TieredOptions{
		Names: []string{"fast", "all"}, RetryAfter: 1, RefillRate: -1, Logger: quiet,
		OnEvent: func(e device.TierEvent) {
			events <- fmt.Sprintf("%s from %d failed=%v", e.Name, e.Addr, e.Err != nil)
		},
	}, first, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	b.write("aaaa", 0)
	b.wantRead("aaaa", 0, 0)

	first.Set(device.FaultyOptions{WriteError: 1})
	if c := b.write("bbbb", 4); c.Err != nil || c.Event != device.Done {
		t.Errorf("a write that the first tier failed: %+v", c)
	}
	m := d.Metrics()[0]
	if m.Healthy || !errors.Is(m.Reason, device.ErrFault) || m.WriteErrors != 1 {
		t.Errorf("metrics of the tier that failed: %+v", m)
	}
	b.wantRead("aaaa", 0, 1)
	b.wantRead("bbbb", 4, 1)

	first.Set(device.FaultyOptions{Down: true})
	b.write("cccc", 8)
	testrun.Until(t, "a start has failed", func() bool { return d.Metrics()[0].Failures == 2 })
	first.Set(device.FaultyOptions{})
	b.write("dddd", 12) // starts the tier, without this write
	for _, want := range []string{"fast from 0 failed=true", "fast from 16 failed=false"} {
		if got := testrun.Receive(t, want, events); got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	b.write("eeee", 16)
	if m := d.Metrics()[0]; !m.Healthy || m.Reason != nil || m.Restarts != 1 || m.Begin != 16 {
		t.Errorf("metrics of the tier that is back: %+v", m)
	}
	b.wantRead("dddd", 12, 1)
	b.wantRead("eeee", 16, 0)
}

// TestHolesSurviveRestart: a durable tier that missed a write does not answer for it after a
// restart.
func TestHolesSurviveRestart(t *testing.T) {
	middle, last := device.NewMemory(), device.NewMemory()
	faulty := device.NewFaulty(middle, device.FaultyOptions{FailWrite: 2})
	opts := device.TieredOptions{Logger: quiet, RefillRate: -1}
	d := started(t, device.NewTieredWith(opts, faulty, last))
	b := newBench(t, d)
	for i := range 3 {
		b.write("good", int64(4*i))
	}
	if err := errors.Join(d.Sync(), b.q.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, startedAt(t, device.NewTieredWith(opts, middle.Reopen(), last.Reopen()), 12))
	for i := range 3 {
		b.wantRead("good", int64(4*i), 1)
	}
	b.write("more", 12)
	b.wantRead("more", 12, 0)
}

func TestLastTierFails(t *testing.T) {
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 2, FailRead: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{Logger: quiet},
		device.NewFaulty(volatile(), device.FaultyOptions{FailWrite: 2, FailRead: 1}), last)).(*device.Tiered)
	b := newBench(t, d)
	b.write("aaaa", 0)
	c := b.write("bbbb", 4)
	if !errors.Is(c.Err, device.ErrFault) || strings.Count(c.Err.Error(), "write of 4 bytes at 4: device") != 2 {
		t.Errorf("a write that both tiers failed: %v, want both errors", c.Err)
	}
	if m := d.Metrics()[1]; m.Healthy || m.Reason == nil {
		t.Errorf("the last tier after a failure: %+v", m)
	}
	if c := b.write("bbbb", 4); c.Err != nil {
		t.Errorf("writing again: %v", c.Err)
	}
	if m := d.Metrics()[1]; !m.Healthy || m.Reason != nil {
		t.Errorf("the last tier after a success: %+v", m)
	}
	if _, c := b.read(4, 0); !errors.Is(c.Err, device.ErrFault) {
		t.Errorf("a read that the last tier failed: %v", c.Err)
	}
	b.wantRead("bbbb", 4, 1)
}

// TestCommitPoint: with the first tier as commit point, a slow last tier delays
// the release of a write and nothing else.
func TestCommitPoint(t *testing.T) {
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	first := device.NewFaulty(volatile(), device.FaultyOptions{FailWrite: 3})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first, last))
	b := newBench(t, d)
	if c := b.write("aaaa", 0); c.Event != device.Committed || c.Err != nil {
		t.Errorf("%+v, want Committed", c)
	}
	b.wantRead("aaaa", 0, 0)
	last.Release()
	if c := b.next(); c.Event != device.Released || c.Err != nil || c.Tag != 1 {
		t.Errorf("%+v, want Released", c)
	}
	last.Set(device.FaultyOptions{WriteError: 1})
	if c := b.write("bbbb", 4); c.Event == device.Committed {
		if c = b.next(); c.Event != device.Released || !errors.Is(c.Err, device.ErrFault) {
			t.Errorf("%+v, want Released with the last tier's error", c)
		}
	} else if !errors.Is(c.Err, device.ErrFault) {
		t.Errorf("%+v, want the last tier's error", c)
	}
	// If the commit point fails, the next tier takes its place.
	last.Set(device.FaultyOptions{})
	if c := b.write("cccc", 8); c.Event != device.Done || c.Err != nil {
		t.Errorf("%+v, want Done", c)
	}
}

// TestSyncNeedsTheCommitPoint: Sync fails if the tier that committed a write has failed and
// the last tier does not have the write yet.
func TestSyncNeedsTheCommitPoint(t *testing.T) {
	first := device.NewFaulty(device.NewMemory(), device.FaultyOptions{SyncError: 1})
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first, last))
	b := newBench(t, d)
	if c := b.write("aaaa", 0); c.Event != device.Committed {
		t.Fatalf("%+v, want Committed", c)
	}
	for range 2 {
		if err := d.Sync(); err == nil {
			t.Error("Sync succeeded, and nobody has the write")
		}
	}
	last.Release()
	if c := b.next(); c.Event != device.Released {
		t.Fatalf("%+v, want Released", c)
	}
	if err := d.Sync(); err != nil {
		t.Errorf("Sync once the last tier has it: %v", err)
	}
}

// So it does when that tier is back, without the write.
func TestSyncNeedsTheWrite(t *testing.T) {
	first := device.NewFaulty(device.NewMemory(), device.FaultyOptions{SyncError: 1})
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RetryAfter: 1, RefillRate: -1, Logger: quiet}, first, last)).(*device.Tiered)
	t.Cleanup(last.Release)
	b := newBench(t, d)
	b.write("aaaa", 0)
	if err := d.Sync(); err == nil {
		t.Error("Sync succeeded, and nobody has the write")
	}
	first.Set(device.FaultyOptions{})
	if err := b.q.Write([]byte("bbbb"), 4, 9); err != nil { // starts the tier
		t.Fatal(err)
	}
	testrun.Until(t, "the first tier is back", func() bool { return d.Metrics()[0].Healthy })
	for range 2 {
		if err := d.Sync(); err == nil {
			t.Error("Sync succeeded, and nobody has the write, though the tier is back")
		}
	}
	last.Release()
	last.Set(device.FaultyOptions{})
	for ended := 0; ended < 2; {
		if b.next().Event != device.Committed {
			ended++
		}
	}
	if err := d.Sync(); err != nil {
		t.Errorf("Sync once the last tier has it: %v", err)
	}
}

// So it does when the last tier has failed the write, which is then not pending there.
func TestSyncNeedsTheFailedWrite(t *testing.T) {
	first := device.NewFaulty(device.NewMemory(), device.FaultyOptions{SyncError: 1})
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Full: true, Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RefillRate: -1, Logger: quiet}, first, last))
	b := newBench(t, d)
	b.write("aaaa", 0)
	last.Release()
	if c := b.next(); c.Event != device.Released || !errors.Is(c.Err, device.ErrNoSpace) {
		t.Fatalf("%+v, want Released with the last tier's error", c)
	}
	for range 2 {
		if err := d.Sync(); err == nil {
			t.Error("Sync succeeded, and nobody has the write")
		}
	}
	last.Set(device.FaultyOptions{})
	if err := b.writeAll("aaaa", 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Errorf("Sync once the last tier has it: %v", err)
	}
}

// What the last tier has failed is noted while another tier still has it pending.
func TestFailedWriteIsNotedAtOnce(t *testing.T) {
	middle := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	memory := device.NewMemory()
	last := device.NewFaulty(memory, device.FaultyOptions{Full: true})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RefillRate: -1, Logger: quiet}, device.NewMemory(), middle, last)).(*device.Tiered)
	b := newBench(t, d)
	t.Cleanup(middle.Release)
	b.write("aaaa", 0)
	testrun.Until(t, "the last tier has failed the write", func() bool {
		b.q.Poll(make([]device.Completion, 1))
		return d.Metrics()[2].WriteErrors > 0
	})
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if got, err := memory.ReadMeta("tiered.floors"); err != nil || string(got) != "[0,4,1]" {
		t.Errorf("floors %s, %v", got, err)
	}
}

// And when the tier fails between its own Sync and the end of the whole.
func TestSyncNeedsTheTierToItsEnd(t *testing.T) {
	first := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	stuck := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	last := &syncHook{Device: stuck}
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RefillRate: -1, Logger: quiet}, first, last)).(*device.Tiered)
	b := newBench(t, d)
	t.Cleanup(stuck.Release)
	b.write("aaaa", 0)
	last.after = func() {
		first.Set(device.FaultyOptions{WriteError: 1})
		if err := b.q.Write([]byte("bbbb"), 4, 9); err != nil {
			t.Error(err)
		}
		testrun.Until(t, "the first tier has failed", func() bool {
			b.q.Poll(make([]device.Completion, 1))
			return !d.Metrics()[0].Healthy
		})
	}
	if err := d.Sync(); err == nil {
		t.Error("Sync succeeded, and the only tier with the write has failed")
	}
	if _, err := stuck.ReadMeta("tiered.floors"); !errors.Is(err, device.ErrNoMeta) {
		t.Errorf("floors are stored: %v", err)
	}
}

// A tier that is lost beyond the commit point, which has synced everything, is no error.
func TestSyncHasTheCommitPoint(t *testing.T) {
	middle := device.NewFaulty(device.NewMemory(), device.FaultyOptions{SyncError: 1})
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RefillRate: -1, Logger: quiet}, device.NewMemory(), middle, last)).(*device.Tiered)
	b := newBench(t, d)
	t.Cleanup(last.Release)
	b.write("aaaa", 0)
	for range 2 { // in the first one it fails
		if err := d.Sync(); err != nil || d.Metrics()[1].Healthy {
			t.Errorf("Sync without the second tier: %v", err)
		}
	}
}

// A Refiller at the commit point may not hold a write. That a tier between it and the last one has stored the
// write commits nothing: Sync does not count on that tier.
func TestTiersBetweenCommitNothing(t *testing.T) {
	first := newLossy(1, 100, 100)
	first.writeError = 1 // with ErrNotHeld
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RefillRate: -1, Logger: quiet}, first, device.NewMemory(), last))
	b := newBench(t, d)
	if err := b.q.Write([]byte("aaaa"), 0, 1); err != nil {
		t.Fatal(err)
	}
	if c, ok := b.polled(); ok {
		t.Fatalf("%+v, and the last tier does not have the write", c)
	}
	last.Release()
	if c := b.next(); c.Event != device.Done || c.Err != nil {
		t.Errorf("%+v, want Done", c)
	}
}

// What ends on a tier after its Sync is not durable there, and its floor is not stored as if it was.
func TestFloorsOfBeforeTheSync(t *testing.T) {
	memory := device.NewMemory()
	stuck := device.NewFaulty(memory, device.FaultyOptions{Stuck: 1})
	last := &syncHook{Device: stuck}
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, device.NewMemory(), last))
	b := newBench(t, d)
	b.write("aaaa", 0)
	last.after = func() {
		stuck.Release()
		if c := b.next(); c.Event != device.Released {
			t.Errorf("%+v", c)
		}
	}
	floors := func(want string) {
		t.Helper()
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		if got, err := memory.ReadMeta("tiered.floors"); err != nil || string(got) != want {
			t.Errorf("floors %s, %v, want %s", got, err, want)
		}
	}
	floors("[0,1]") // the last tier may lack all from 0 on
	last.after = nil
	floors("[0,0]")
}

// syncHook calls after at the end of each Sync.
type syncHook struct {
	device.Device
	after func()
}

func (d *syncHook) Sync() error {
	err := d.Device.Sync()
	if d.after != nil {
		d.after()
	}
	return err
}

func TestManyFailedReadsTakeATierOut(t *testing.T) {
	first := device.NewFaulty(volatile(), device.FaultyOptions{ReadError: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{Logger: quiet}, first, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	b.write("aaaa", 0)
	for range 100 {
		b.wantRead("aaaa", 0, 1)
	}
	m := d.Metrics()
	if m[0].Healthy || m[0].ReadErrors >= 100 || m[0].FallThroughs != m[0].ReadErrors || m[1].Hits != 100 {
		t.Errorf("metrics %+v", m)
	}
}

// reusing is a Memory whose reads lose a race: by the time they complete, Begin
// has passed the address and the space has other bytes.
type reusing struct {
	*device.Memory
}

type reusingQueue struct {
	device.Queue
	d    reusing
	dst  []byte // of the pending read
	addr int64
}

func (d reusing) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Memory.NewQueue(depth)
	return &reusingQueue{Queue: q, d: d}, err
}

func (q *reusingQueue) Read(dst []byte, addr int64, tag uint64) error {
	q.dst, q.addr = dst, addr
	return q.Queue.Read(dst, addr, tag)
}

func (q *reusingQueue) Poll(done []device.Completion) int {
	n := q.Queue.Poll(done)
	if n > 0 && q.dst != nil {
		copy(q.dst, "????")
		done[0].Err = q.d.Truncate(q.addr + 1)
		q.dst = nil
	}
	return n
}

func TestBeginIsCheckedAfterTheRead(t *testing.T) {
	d := started(t, device.NewTiered(reusing{volatile()}, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	b.write("aaaa", 0)
	b.wantRead("aaaa", 0, 1)
	if m := d.Metrics()[0]; !m.Healthy || m.FallThroughs != 1 || m.Hits != 0 {
		t.Errorf("metrics %+v", m)
	}
}

func TestBadTiers(t *testing.T) {
	for name, d := range map[string]*device.Tiered{
		"none":         device.NewTiered(),
		"nil":          device.NewTiered(nil, device.NewMemory()),
		"too many":     device.NewTiered(make([]device.Device, device.MaxTiers+1)...),
		"commit point": device.NewTieredWith(device.TieredOptions{CommitPoint: 2}, device.NewMemory()),
		"names":        device.NewTieredWith(device.TieredOptions{Names: []string{"a", "b"}}, device.NewMemory()),
	} {
		if err := d.Start(0); err == nil {
			t.Errorf("%s: Start succeeded", name)
		}
		if _, err := d.NewQueue(1); err == nil {
			t.Errorf("%s: NewQueue succeeded", name)
		}
		_, metaErr := d.ReadMeta("x")
		for _, err := range []error{d.Truncate(0), d.Sync(), d.WriteMeta("x", nil), metaErr} {
			if err == nil {
				t.Errorf("%s: a method succeeded", name)
			}
		}
		d.Alignment()
		d.Begin()
		d.Metrics()
		if err := d.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
}

// TestNoAllocations checks that reads and writes do not allocate in the steady state.
func TestNoAllocations(t *testing.T) {
	for name, d := range map[string]device.Device{
		"memory": device.NewMemory(),
		"null":   device.NewNull(),
		"tiered": device.NewTiered(volatile(), device.NewMemory()),
	} {
		b := newBench(t, started(t, d))
		b.write("some bytes", 0)
		src, dst := []byte("some bytes"), make([]byte, 10)
		var done [8]device.Completion
		if allocs := testrun.AllocsPerRun(100, func() {
			for tag := range uint64(4) {
				err := b.q.Write(src, 0, tag)
				if err == nil && name != "null" { // a null device's reads are errors
					err = b.q.Read(dst, 0, tag)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := b.q.Submit(); err != nil {
				t.Fatal(err)
			}
			b.q.Poll(done[:])
		}); allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// TestDamagedFloors: if the stored floors cannot be read, only the last tier answers old
// addresses.
func TestDamagedFloors(t *testing.T) {
	for _, stored := range []string{"", "rubbish", "[0]", "[0,0,0]", `{"a":1}`} {
		first, last := device.NewMemory(), device.NewMemory()
		d := started(t, device.NewTiered(first, last))
		b := newBench(t, d)
		b.write("good", 0)
		if err := errors.Join(b.q.Close(), d.WriteMeta("tiered.floors", []byte(stored)), d.Close()); err != nil {
			t.Fatal(err)
		}
		again := device.NewTieredWith(device.TieredOptions{RefillRate: -1}, first.Reopen(), last.Reopen())
		b = newBench(t, startedAt(t, again, 4))
		b.wantRead("good", 0, 1)
		b.write("more", 4)
		b.wantRead("more", 4, 0)
	}
}

// narrow is a device whose queues accept two operations, at any depth.
type narrow struct{ device.Device }

func (d narrow) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &narrowQueue{Queue: q}, err
}

type narrowQueue struct {
	device.Queue
	pending int
}

func (q *narrowQueue) take(start func() error) error {
	if q.pending == 2 {
		return device.ErrQueueFull
	}
	q.pending++
	return start()
}

func (q *narrowQueue) Read(dst []byte, addr int64, tag uint64) error {
	return q.take(func() error { return q.Queue.Read(dst, addr, tag) })
}

func (q *narrowQueue) Write(src []byte, addr int64, tag uint64) error {
	return q.take(func() error { return q.Queue.Write(src, addr, tag) })
}

func (q *narrowQueue) Poll(done []device.Completion) int {
	n := q.Queue.Poll(done)
	q.pending -= n
	return n
}

// A tier whose queue is full for the moment has not failed. Operations that it refused are
// enqueued later, in order.
func TestTierIsFull(t *testing.T) {
	for _, tiers := range [][]device.Device{
		{narrow{volatile()}, device.NewMemory()},
		{volatile(), narrow{device.NewMemory()}},
		{narrow{volatile()}, narrow{device.NewMemory()}},
	} {
		d := started(t, device.NewTieredWith(device.TieredOptions{
			CommitPoint: 1, Logger: quiet, OnEvent: func(e device.TierEvent) { t.Error(e) },
		}, tiers...)).(*device.Tiered)
		q := newBench(t, d).q
		finish := func(ends int, event device.Event) {
			t.Helper()
			if err := q.Submit(); err != nil {
				t.Fatal(err)
			}
			for ends > 0 {
				if err := q.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				var done [5]device.Completion
				for _, c := range done[:q.Poll(done[:])] {
					if c.Err != nil || c.N != 4 || event == device.Done && c.Tier != 0 {
						t.Errorf("%+v", c)
					}
					if c.Event == device.Done || c.Event == device.Released {
						ends--
					}
				}
			}
		}
		const n = 16
		for lap := range 2 { // the second lap overwrites the first
			for i := range n {
				if err := q.Write(fmt.Appendf(nil, "%d %2d", lap, i), int64(4*i), uint64(i)); err != nil {
					t.Fatal(err)
				}
			}
			finish(n, device.Released)
		}
		var got [n][4]byte
		for i := range n {
			if err := q.Read(got[i][:], int64(4*i), uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		finish(n, device.Done)
		for i := range n {
			if want := fmt.Sprintf("1 %2d", i); string(got[i][:]) != want {
				t.Errorf("%q, want %q", got[i], want)
			}
		}
		for i, m := range d.Metrics() {
			if !m.Healthy || m.WriteErrors+m.ReadErrors != 0 {
				t.Errorf("tier %d: %+v", i, m)
			}
		}
	}
}
