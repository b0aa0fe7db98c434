package device_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// TestRefillAgainstModel runs random logs on tiers, while the first tier loses random ranges
// and restarts, and the log is written, read, truncated and reopened. Every read must be
// right, and at the end the first tier must hold all it has room for, and nothing else.
func TestRefillAgainstModel(t *testing.T) {
	defer testrun.NoLeaks(t, goleak.IgnoreCurrent()) // ignore goroutines of other tests
	seeds := testrun.Scale(15, 60, 600)
	for seed := range testrun.Raced(seeds, seeds/4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			newRefillModel(t, uint64(seed)).run()
		})
	}
}

const refillPage = 1 << 10

// refillModel is one run. Some pages are written twice, like the page in which a log ends:
// first with zeros in the second half.
type refillModel struct {
	t       *testing.T
	r       *rand.Rand
	bytes   []byte
	next    int          // next page to write
	half    map[int]bool // pages written once that will be written again
	pending map[int]bool // pages being written
	begin   int
	commit  int
	first   *lossy
	last    *device.Memory
	d       *device.Tiered
	p       *devicetest.Pump
}

func newRefillModel(t *testing.T, seed uint64) *refillModel {
	m := &refillModel{
		t: t, r: rand.New(rand.NewPCG(seed, 78)), half: map[int]bool{}, pending: map[int]bool{}, last: device.NewMemory(),
	}
	m.bytes = make([]byte, 120*refillPage)
	for i := range m.bytes {
		m.bytes[i] = byte(1 + m.r.IntN(255))
	}
	m.first = newLossy(seed, len(m.bytes), m.r.Int64N(int64(len(m.bytes))))
	m.commit = m.r.IntN(3)
	m.open()
	return m
}

func (m *refillModel) open() {
	tiers := []device.Device{m.first}
	if m.r.IntN(3) == 0 { // a tier in between, with a hole that it does not know of
		tiers = append(tiers, device.NewFaulty(volatile(), device.FaultyOptions{Seed: m.r.Uint64(), WriteError: 0.1, ReadError: 0.1}))
	}
	tiers = append(tiers, late{m.last.Reopen(), m.r.Uint64()})
	m.d = device.NewTieredWith(device.TieredOptions{
		CommitPoint: m.commit, RetryAfter: 1, Logger: quiet,
	}, tiers...)
	device.CutRefills(m.d, 1<<(10+m.r.IntN(7))) // up to 16 in flight
	if err := m.d.Start(int64(m.next * refillPage)); err != nil {
		m.t.Fatal(err)
	}
	m.p = devicetest.NewPump(m.t, m.d, 1+m.r.IntN(20))
}

func (m *refillModel) run() {
	for m.next*refillPage < len(m.bytes) && !m.t.Failed() {
		switch k := m.r.IntN(200); {
		case k < 25:
			m.write()
		case k < 180:
			m.read()
		case k < 185:
			from := m.r.IntN(len(m.bytes))
			m.first.lose(int64(from), int64(from+m.r.IntN(len(m.bytes)-from)))
		case k < 190:
			m.first.restore()
		case k < 193:
			failure := device.ErrNotHeld
			if m.r.IntN(2) == 0 {
				failure = device.ErrFault
			}
			m.first.fail(0.5*m.r.Float64(), failure)
		case k < 196:
			m.first.fail(0, device.ErrNotHeld)
		case k < 198:
			m.begin = min(m.begin+m.r.IntN(3*refillPage), m.settled())
			if err := m.d.Truncate(int64(m.begin)); err != nil {
				m.t.Errorf("Truncate: %v", err)
			}
		case k < 199:
			m.reopen()
		default:
			runtime.Gosched()
		}
	}
	m.finish()
}

// settled is the end of the range that can be read from the device.
func (m *refillModel) settled() int {
	end := m.next
	for page := range m.pending {
		end = min(end, page)
	}
	for page := range m.half {
		end = min(end, page)
	}
	return end * refillPage
}

func (m *refillModel) write() {
	page := m.next
	whole := m.r.IntN(3) > 0
	for again := range m.half {
		page, whole = again, true
		break
	}
	if m.next++; page != m.next-1 {
		m.next--
		delete(m.half, page)
	}
	src := bytes.Clone(m.bytes[page*refillPage:][:refillPage])
	if !whole {
		clear(src[refillPage/2:])
	}
	m.pending[page] = true
	m.p.Write(src, int64(page*refillPage), func(error) {
		delete(m.pending, page)
		if !whole {
			m.half[page] = true
		}
	})
}

func (m *refillModel) read() {
	end := m.settled()
	if end <= m.begin {
		return
	}
	addr := m.begin + m.r.IntN(end-m.begin)
	n := 1 + m.r.IntN(min(end-addr, 2*refillPage))
	m.p.Read(make([]byte, n), int64(addr), m.bytes[addr:addr+n])
}

// whole completes the pages that are written twice.
func (m *refillModel) whole() {
	for m.p.Drain(); len(m.half) > 0; m.p.Drain() {
		m.write()
	}
}

func (m *refillModel) reopen() {
	m.whole()
	if err := m.d.Sync(); err != nil {
		m.t.Errorf("Sync: %v", err)
	}
	m.close()
	m.open()
}

func (m *refillModel) close() {
	m.p.Close()
	if err := m.d.Close(); err != nil {
		m.t.Errorf("Close: %v", err)
	}
}

// finish waits until the first tier is refilled, and checks it.
func (m *refillModel) finish() {
	m.whole()
	m.first.fail(0, device.ErrNotHeld)
	m.first.restore()
	if !m.d.Metrics()[0].Healthy { // only a write restarts it
		m.reopen()
	}
	testrun.Until(m.t, "the first tier is refilled", func() bool { // the last piece is counted with a delay
		tier := m.d.Metrics()[0]
		return tier.Missing == 0 && (tier.Refilled == 0) == (tier.Refills == 0)
	})
	m.close()
	f := m.first
	if f.begin > max(f.end-f.capacity, int64(m.begin)) || f.end != int64(m.next*refillPage) {
		m.t.Errorf("the first tier holds [%d, %d)", f.begin, f.end)
	}
	if !bytes.Equal(f.bytes[f.begin:f.end], m.bytes[f.begin:f.end]) {
		testrun.Wrong(m.t, "the first tier holds other bytes than the log's")
	}
}

// lines holds log output.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), s)
}

func (l *lines) has(s string) bool { return l.count(s) > 0 }

// A tier that is empty after a restart is refilled up to its capacity, newest first. Until
// then the next tier answers its reads.
func TestRefillAfterStart(t *testing.T) {
	defer testrun.NoLeaks(t, goleak.IgnoreCurrent()) // ignore goroutines of other tests
	const size, capacity = 1 << 20, 300 << 10
	last := device.NewMemory()
	log := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	b := newBench(t, started(t, last))
	b.write(string(log), 0)

	first := newLossy(1, size, capacity)
	var logged lines
	d := device.NewTieredWith(device.TieredOptions{
		Names: []string{"fast", "all"}, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}, first, last)
	first.lose(0, size) // no memory at first
	if err := d.Start(size); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, d)
	b.wantRead("789a", size-9, 1)
	first.restore()
	testrun.Until(t, "the refill is logged", func() bool { return logged.has("tier=fast bytes=307200") }) // the last piece is counted with a delay
	if m := d.Metrics()[0]; m.Missing != 0 {
		t.Errorf("metrics %+v", m)
	}
	b.wantRead("789a", size-9, 0)
	b.wantRead("0123", size-capacity, 0)
	b.wantRead("cdef", size-capacity-4, 1)
	if m := d.Metrics()[0]; m.Refilled != capacity || m.Refills < 2 || m.Hits != 2 || m.FallThroughs != 1 {
		t.Errorf("metrics %+v", m)
	}
	if m := d.Metrics()[1]; m.Hits != 2 {
		t.Errorf("reads for a refill are counted as the log's: %+v", m)
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if n := logged.count("was refilled"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	upwards := 0
	for i, hole := range first.refills {
		if i > 0 && hole.From > first.refills[i-1].From {
			upwards++ // this read follows a failed one
		}
	}
	if upwards > len(first.refills)/2 {
		t.Errorf("%d of %d refills are of newer bytes than the one before", upwards, len(first.refills))
	}
}

// holding is a device that holds its next write back.
type holding struct {
	*device.Faulty
	next     atomic.Bool // the next write is held back
	held     chan struct{}
	released chan struct{}
}

func (h *holding) NewQueue(depth int) (device.Queue, error) {
	q, err := h.Faulty.NewQueue(depth)
	return &holdingQueue{Queue: q, of: h}, err
}

type holdingQueue struct {
	device.Queue
	of    *holding
	write func() error // that is held back
}

func (q *holdingQueue) Write(src []byte, addr int64, tag uint64) error {
	write := func() error { return q.Queue.Write(src, addr, tag) }
	if !q.of.next.CompareAndSwap(true, false) {
		return write()
	}
	q.write = write
	close(q.of.held)
	return nil
}

func (q *holdingQueue) Wait(ctx context.Context) error {
	if q.write != nil {
		select {
		case <-q.of.released:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := errors.Join(q.write(), q.Submit())
		if q.write = nil; err != nil {
			return err
		}
	}
	return q.Queue.Wait(ctx)
}

// A block that the log writes again while a tier that is no Refiller is refilled with it: the tier does not
// answer with what was copied before.
func TestRewriteWhileRefilled(t *testing.T) {
	defer testrun.NoLeaks(t)
	first := &holding{
		Faulty: device.NewFaulty(device.NewMemory(), device.FaultyOptions{}), held: make(chan struct{}), released: make(chan struct{}),
	}
	d := device.NewTieredWith(device.TieredOptions{RetryAfter: 1, Logger: quiet}, first, device.NewMemory())
	b := newBench(t, started(t, d))
	b.write("aaaa0000", 0)
	first.Set(device.FaultyOptions{WriteError: 1})
	b.write("bbbb", 8)
	first.Set(device.FaultyOptions{})
	first.next.Store(true)
	testrun.Until(t, "the first tier is being refilled", func() bool {
		b.wantRead("aaaa0000bbbb", 0, 1)
		select {
		case <-first.held:
			return true
		default:
			return false
		}
	})
	b.write("aaaacccc", 0)
	close(first.released)
	testrun.Until(t, "the first tier answers", func() bool {
		got, c := b.read(12, 0)
		if c.Err != nil || got != "aaaaccccbbbb" {
			testrun.Wrong(t, "tier %d answers %q, %v", c.Tier, got, c.Err)
		}
		return c.Tier == 0
	})
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if got := d.Metrics()[0].Refilled; got != 12 { // what was overtaken is not counted
		t.Errorf("%d bytes were refilled, want 12", got)
	}
}

// A first tier that fails a write with ErrNotHeld stays in the set. The write is committed
// when another tier has it.
func TestHoleIsNoCommitPoint(t *testing.T) {
	defer testrun.NoLeaks(t, goleak.IgnoreCurrent()) // ignore goroutines of other tests
	first := newLossy(2, 1000, 1000)
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet, RefillRate: -1}, first, last)
	b := newBench(t, started(t, d))
	if c := b.write("aaaa", 0); c.Event != device.Committed {
		t.Errorf("%+v, want Committed", c)
	}
	last.Release()
	if c := b.next(); c.Event != device.Released {
		t.Errorf("%+v, want Released", c)
	}
	first.fail(1, device.ErrNotHeld)
	if err := b.q.Write([]byte("bbbb"), 4, 1); err != nil {
		t.Fatal(err)
	}
	if c, ok := b.polled(); ok {
		t.Fatalf("%+v, and nobody has the write", c)
	}
	last.Release()
	if c := b.next(); c.Event != device.Done || c.Err != nil {
		t.Errorf("%+v, want Done", c)
	}
	if m := d.Metrics()[0]; !m.Healthy || m.WriteErrors != 1 || m.Failures != 0 || m.Missing != 4 {
		t.Errorf("metrics %+v", m)
	}
	last.Set(device.FaultyOptions{})
	b.wantRead("aaaa", 0, 0)
	b.wantRead("bbbb", 4, 1)
	first.fail(0, nil)
	b.write("cccc", 8)
	b.wantRead("cccc", 8, 0)
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// A write that begins below the floor of a tier, of the block in which the log ended when the tier came
// back, is not committed by that tier: after a restart it would not answer for it. Nor is it by a tier between
// that one and the last, of which Sync does not know what it relies on.
func TestBelowTheFloorIsNoCommitPoint(t *testing.T) {
	for name, middle := range map[string]bool{"two tiers": false, "three tiers": true} {
		t.Run(name, func(t *testing.T) { belowTheFloor(t, middle) })
	}
}

func belowTheFloor(t *testing.T, middle bool) {
	defer testrun.NoLeaks(t)
	first := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	tiers := []device.Device{first, last}
	if middle {
		tiers = []device.Device{first, device.NewMemory(), last}
	}
	d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RetryAfter: 1, Logger: quiet, RefillRate: -1}, tiers...)
	b := newBench(t, started(t, d))
	b.write("aaaa0000", 0)
	first.Set(device.FaultyOptions{WriteError: 1})
	b.write("bbbb", 8)
	first.Set(device.FaultyOptions{})
	testrun.Until(t, "the first tier is back", func() bool { b.wantRead("bbbb", 8, 1); return d.Metrics()[0].Healthy })
	last.Set(device.FaultyOptions{Stuck: 1})
	for _, w := range []struct {
		bytes string
		addr  int64
		want  device.Event
	}{{"cccc", 8, device.Done}, {"dddd", 12, device.Committed}} {
		if err := b.q.Write([]byte(w.bytes), w.addr, 1); err != nil {
			t.Fatal(err)
		}
		early, ok := b.polled()
		if ok != (w.want == device.Committed) {
			t.Errorf("%s: an event %v, %+v", w.bytes, ok, early)
		}
		last.Release()
		if !ok || early.Event == device.Committed {
			if c := b.next(); c.Err != nil || (c.Event == device.Done) != (w.want == device.Done) {
				t.Errorf("%s: %+v", w.bytes, c)
			}
		}
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// If the commit point lost writes, Sync fails until the last tier has them.
func TestSyncAfterALoss(t *testing.T) {
	defer testrun.NoLeaks(t, goleak.IgnoreCurrent()) // ignore goroutines of other tests
	first := newLossy(3, 1000, 1000)
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first, last)
	b := newBench(t, started(t, d))
	if c := b.write("aaaa", 0); c.Event != device.Committed {
		t.Fatalf("%+v, want Committed", c)
	}
	if err := d.Sync(); err != nil {
		t.Errorf("Sync of what the first tier holds: %v", err)
	}
	first.lose(0, 4)
	for range 2 {
		if err := d.Sync(); err == nil {
			t.Error("Sync succeeded, and nobody has the write")
		}
	}
	last.Release()
	if c := b.next(); c.Event != device.Released {
		t.Fatalf("%+v, want Released", c)
	}
	for range 2 {
		if err := d.Sync(); err != nil {
			t.Errorf("Sync once the last tier has it: %v", err)
		}
	}
	if m := d.Metrics()[0]; !m.Healthy {
		t.Errorf("metrics %+v", m)
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// A tier that is itself a Tiered is refilled by writes with two events. Each counts as one.
func TestRefillOfTiers(t *testing.T) {
	slow := device.NewFaulty(device.NewMemory(), device.FaultyOptions{WriteError: 1})
	inner := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, RefillRate: -1, Logger: quiet}, device.NewMemory(), slow)
	d := started(t, device.NewTieredWith(device.TieredOptions{RetryAfter: 1, Logger: quiet}, inner, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	if err := b.writeAll("aaaa", 0); err != nil {
		t.Fatal(err)
	}
	if m := d.Metrics()[0]; m.Healthy {
		t.Fatalf("%+v", m)
	}
	slow.Set(device.FaultyOptions{Delay: 1})
	for at := int64(4); !d.Metrics()[0].Healthy; at += 4 { // a start that takes too long is repeated
		if err := b.writeAll("bbbb", at); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Until(t, "the tier is refilled", func() bool { m := d.Metrics()[0]; return m.Missing == 0 && m.Refilled > 0 })
	b.wantRead("aaaabbbb", 0, 0)
	if n := device.Writing(d, 0); n != 0 {
		t.Errorf("%d writes are pending on a tier that has nothing to do", n)
	}
}
