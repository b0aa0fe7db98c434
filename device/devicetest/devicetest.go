// Package devicetest is the conformance test of device.Device.
//
//	func TestConformance(t *testing.T) {
//		devicetest.Run(t, func(t *testing.T) device.Device { return device.NewMemory() })
//	}
//
// A device may hold less than was written to it, as a tier that is smaller than the log does,
// if its Begin shows that.
package devicetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// patience is the timeout of an operation.
var patience = testrun.Patience(30 * time.Second)

// Option changes what Run tests.
type Option func(*suite)

// Reopen also tests that what was synced survives a restart: reopen gets a device that was
// closed and returns another over the same storage.
func Reopen(reopen func(t *testing.T, old device.Device) device.Device) Option {
	return func(s *suite) { s.reopen = reopen }
}

// Size sets the number of bytes that the tests write. Default 1 MiB.
func Size(bytes int) Option { return func(s *suite) { s.size = bytes } }

type suite struct {
	open   func(*testing.T) device.Device
	reopen func(*testing.T, device.Device) device.Device
	size   int
}

// Run tests the devices that open returns, each new, empty and not started. Run
// closes them.
func Run(t *testing.T, open func(t *testing.T) device.Device, opts ...Option) {
	s := &suite{open: open, size: 1 << 20}
	for _, opt := range opts {
		opt(s)
	}
	t.Run("ReadsEqualWrites", s.readsEqualWrites)
	t.Run("FullQueue", s.fullQueue)
	t.Run("RefusedFill", s.refusedFill)
	t.Run("ManyQueues", s.manyQueues)
	t.Run("Truncate", s.truncate)
	t.Run("GoesOnAbove", s.goesOnAbove)
	t.Run("NotWritten", s.notWritten)
	t.Run("BadArguments", s.badArguments)
	t.Run("Meta", s.meta)
	t.Run("Objects", s.objects)
	t.Run("ObjectNames", s.objectNames)
	t.Run("ManyObjects", s.manyObjects)
	t.Run("Closed", s.closed)
	if s.reopen != nil {
		t.Run("Reopen", func(t *testing.T) { s.restart(t, false) })
		t.Run("ReopenPrepared", func(t *testing.T) { s.restart(t, true) })
		t.Run("ReopenObjects", s.restartObjects)
		t.Run("ReopenCommits", s.restartCommits)
	}
}

// start opens a device and starts it at 0. The end of the test closes it.
func (s *suite) start(t *testing.T) device.Device {
	t.Helper()
	d := s.open(t)
	t.Cleanup(func() { closeDevice(t, d) })
	if err := d.Start(0); err != nil {
		t.Fatalf("Start: %v", err)
	}
	return d
}

// must ends the test if there is an error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func closeDevice(t *testing.T, d device.Device) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func newQueue(t testing.TB, d device.Device, depth int) device.Queue {
	t.Helper()
	q, err := d.NewQueue(depth)
	must(t, err)
	return q
}

// poll waits until n operations have ended, and calls check for each of their events.
func poll(t testing.TB, q device.Queue, n int, check func(device.Completion)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for n > 0 {
		must(t, q.Submit(), q.Wait(ctx))
		var done [3]device.Completion
		k := q.Poll(done[:])
		if k == 0 {
			t.Fatalf("Wait returned with %d operations pending, and Poll has nothing", n)
		}
		for _, c := range done[:k] {
			if check(c); c.Event != device.Committed {
				n--
			}
		}
	}
}

// content returns bytes without repetitions.
func content(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// fill writes model from address 0 on, in pages, many at a time.
func (s *suite) fill(t *testing.T, d device.Device, model []byte) {
	t.Helper()
	s.fillFrom(t, d, 0, model)
}

// fillFrom is fill from an address on.
func (s *suite) fillFrom(t *testing.T, d device.Device, from int64, model []byte) {
	t.Helper()
	p := NewPump(t, d, 8)
	defer p.Close()
	page := max(16<<10, d.Alignment())
	for at := 0; at < len(model); at += page {
		src := device.AlignedBuffer(page, d.Alignment())
		copy(src, model[at:])
		p.Write(src, from+int64(at), nil)
	}
}

func (s *suite) readsEqualWrites(t *testing.T) {
	d := s.start(t)
	model := content(1, s.size)
	s.fill(t, d, model)
	p := NewPump(t, d, 64)
	defer p.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		addr := r.IntN(len(model))
		n := 1 + r.IntN(min(len(model)-addr, 1<<r.IntN(17)))
		p.Read(make([]byte, n), int64(addr), model[addr:addr+n])
	}
}

func (s *suite) fullQueue(t *testing.T) {
	d := s.start(t)
	model := content(2, 64<<10)
	s.fill(t, d, model)
	const depth = 7
	q := newQueue(t, d, depth)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := q.Wait(ctx); err != nil {
		t.Errorf("Wait with nothing pending: %v", err)
	}
	var bufs [depth][100]byte
	for round := range 3 {
		for i := range depth {
			if err := q.Read(bufs[i][:], int64(1000*i), uint64(i)); err != nil {
				t.Fatalf("round %d: Read %d of %d: %v", round, i, depth, err)
			}
		}
		if err := q.Read(make([]byte, 1), 0, depth); !errors.Is(err, device.ErrQueueFull) {
			t.Fatalf("Read beyond the depth: %v, want ErrQueueFull", err)
		}
		var seen [depth]int
		poll(t, q, depth, func(c device.Completion) {
			if c.Err != nil || c.N != 100 || c.Event != device.Done || c.Tag >= depth {
				t.Fatalf("completion %+v", c)
			}
			seen[c.Tag]++
		})
		for i, n := range seen {
			if n != 1 || !bytes.Equal(bufs[i][:], model[1000*i:1000*i+100]) {
				t.Fatalf("operation %d: %d completions, or wrong bytes", i, n)
			}
		}
	}
	if n := q.Poll(make([]device.Completion, depth)); n != 0 {
		t.Errorf("%d completions of nothing", n)
	}
	must(t, q.Close())
	if err := q.Read(bufs[0][:], 0, 0); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Read on a closed queue: %v, want ErrClosed", err)
	}
}

// refusedFill enqueues invalid operations without polling: each counts as pending and completes
// once, unless the queue returns its error at once.
func (s *suite) refusedFill(t *testing.T) {
	d := s.start(t)
	const depth = 3
	q := newQueue(t, d, depth)
	defer func() { _ = q.Close() }() // for a test that fails before it closes q
	var dst [10]byte
	for round := range 3 {
		taken := 0
		for ; taken < 4*depth; taken++ {
			if err := q.Read(dst[:], -1000, uint64(taken)); errors.Is(err, device.ErrQueueFull) {
				break
			} else if errors.Is(err, device.ErrNotHeld) {
				t.Skip("it refuses at once")
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if taken != depth {
			t.Errorf("round %d: %d reads below address 0 were taken before ErrQueueFull, want %d", round, taken, depth)
		}
		seen := make([]int, taken)
		poll(t, q, taken, func(c device.Completion) {
			if c.Tag >= uint64(taken) || c.Err == nil || c.N != 0 || c.Event != device.Done {
				t.Fatalf("round %d: completion %+v", round, c)
			}
			seen[c.Tag]++
		})
		for i, n := range seen {
			if n != 1 {
				t.Errorf("round %d: operation %d completed %d times", round, i, n)
			}
		}
	}
	must(t, q.Close())
}

func (s *suite) manyQueues(t *testing.T) {
	d := s.start(t)
	const readers = 4
	page := max(16<<10, d.Alignment())
	model := content(3, s.size/page*page)
	// Readers follow the writer: written is the end of what they may read.
	var mu sync.Mutex
	var written int
	grown := sync.NewCond(&mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			mu.Lock()
			written = len(model)
			grown.Broadcast()
			mu.Unlock()
		}()
		p := NewPump(t, d, 4)
		defer p.Close()
		for at := 0; at < len(model); at += page {
			src := device.AlignedBuffer(page, d.Alignment())
			copy(src, model[at:])
			p.Write(src, int64(at), nil)
			p.Drain()
			mu.Lock()
			written = at + page
			grown.Broadcast()
			mu.Unlock()
		}
	})
	for id := range readers {
		wg.Go(func() {
			p := NewPump(t, d, 16)
			defer p.Close()
			r := rand.New(rand.NewPCG(uint64(id), 3))
			for range 500 {
				mu.Lock()
				for written == 0 {
					grown.Wait()
				}
				end := written
				mu.Unlock()
				addr := r.IntN(end)
				n := 1 + r.IntN(min(end-addr, 2000))
				p.Read(make([]byte, n), int64(addr), model[addr:addr+n])
			}
		})
	}
	wg.Wait()
}

func (s *suite) truncate(t *testing.T) {
	d := s.start(t)
	model := content(4, s.size)
	s.fill(t, d, model)
	for _, begin := range []int{1, s.size / 2, s.size/2 + 1, s.size - 1} {
		must(t, d.Truncate(int64(begin)))
		if got := d.Begin(); got < int64(begin) {
			t.Fatalf("Begin is %d after Truncate(%d)", got, begin)
		}
		p := NewPump(t, d, 4)
		p.ReadFails(make([]byte, 1), int64(begin-1), device.ErrNotHeld)
		p.Read(make([]byte, s.size-begin), int64(begin), model[begin:])
		p.Close()
	}
	if err := d.Truncate(1); err != nil {
		t.Errorf("Truncate backwards: %v", err)
	}
	if got := d.Begin(); got < int64(s.size-1) {
		t.Errorf("Begin went back to %d", got)
	}
}

// goesOnAbove: a log that could not be written goes on above what was, after Truncate.
func (s *suite) goesOnAbove(t *testing.T) {
	d := s.start(t)
	page := max(16<<10, d.Alignment())
	model := content(4, s.size/4/page*page)
	s.fill(t, d, model)
	end := int64(len(model))
	for range 2 {
		begin := end + 3*int64(page)
		must(t, d.Truncate(begin))
		if got := d.Begin(); got != begin {
			t.Fatalf("Begin is %d after Truncate(%d)", got, begin)
		}
		p := NewPump(t, d, 4)
		p.ReadFails(make([]byte, 1), begin-1, device.ErrNotHeld)
		p.ReadFails(make([]byte, 1), begin, device.ErrNotHeld)
		p.Close()
		s.fillFrom(t, d, begin, model)
		must(t, d.Sync())
		end = begin + int64(len(model))
	}
	if s.reopen != nil {
		must(t, d.WriteMeta("name", []byte("kept")), d.Close())
		d = s.reopen(t, d)
		t.Cleanup(func() { closeDevice(t, d) })
		must(t, d.Start(end))
	}
	begin := end - int64(len(model))
	if got := d.Begin(); got > begin {
		t.Fatalf("Begin is %d, want at most %d", got, begin)
	}
	p := NewPump(t, d, 4)
	defer p.Close()
	p.ReadFails(make([]byte, 1), begin-1, device.ErrNotHeld)
	p.Read(make([]byte, len(model)), begin, model)
}

func (s *suite) notWritten(t *testing.T) {
	d := s.start(t)
	s.fill(t, d, content(5, 64<<10))
	p := NewPump(t, d, 4)
	defer p.Close()
	for _, addr := range []int64{1 << 30, 1 << 40, 1<<48 - 1} {
		p.ReadFails(make([]byte, 100), addr, device.ErrNotHeld)
	}
}

func (s *suite) badArguments(t *testing.T) {
	d := s.start(t)
	for _, depth := range []int{-1, 0, 1 << 30} {
		if q, err := d.NewQueue(depth); err == nil {
			t.Errorf("a queue of depth %d was made", depth)
			_ = q.Close()
		}
	}
	if err := d.Start(-1); err == nil {
		t.Error("Start(-1) succeeded")
	}
	if err := d.Truncate(-1); err == nil {
		t.Error("Truncate(-1) succeeded")
	}
	p := NewPump(t, d, 4)
	defer p.Close()
	for _, addr := range []int64{-1, -1 << 63, 1<<63 - 1} {
		p.ReadFails(make([]byte, 100), addr, nil)
	}
}

func (s *suite) closed(t *testing.T) {
	d := s.start(t)
	q := newQueue(t, d, 4)
	for range 2 {
		if err := q.Close(); err != nil {
			t.Errorf("closing an idle queue: %v", err)
		}
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Errorf("closing an idle device: %v", err)
		}
	}
}

// restartCommits commits a log's tail with each part of the log, and starts a device again at
// the last one.
func (s *suite) restartCommits(t *testing.T) {
	d := s.start(t)
	model := content(8, s.size)
	align := d.Alignment()
	p := NewPump(t, d, 2)
	tail := 0
	for part := 1; tail < s.size; part = part*3 + part%2 {
		from := tail &^ (align - 1)
		tail = min(tail+part, s.size)
		src := device.AlignedBuffer((tail-from+align-1)&^(align-1), align)
		copy(src, model[from:tail])
		done := false
		if c, ok := d.(device.Committer); ok && part%2 == 0 {
			var err error
			done, err = c.CommitWith(src, int64(from), "tail", []byte(strconv.Itoa(tail)))
			must(t, err)
		}
		p.Write(src, int64(from), nil)
		p.Drain()
		if !done {
			must(t, device.Commit(d, "tail", []byte(strconv.Itoa(tail))))
		}
	}
	p.Close()
	must(t, d.WriteMeta("tail", []byte(strconv.Itoa(tail-1))), d.Close())
	d = s.reopen(t, d)
	defer closeDevice(t, d)
	if got, err := d.ReadMeta("tail"); err != nil || string(got) != strconv.Itoa(tail-1) {
		t.Fatalf("metadata after the restart: %q, %v, want %d", got, err, tail-1)
	}
	must(t, d.Start(int64(tail-1)))
	p = NewPump(t, d, 2)
	defer p.Close()
	p.Read(make([]byte, tail-1), 0, model[:tail-1])
}

// restart starts a device again at a tail below what it holds, with or without Prepare before.
func (s *suite) restart(t *testing.T, prepared bool) {
	d := s.start(t)
	model := content(6, s.size)
	s.fill(t, d, model)
	begin, tail := s.size/3, s.size/4*3+5
	must(t, d.Truncate(int64(begin)), d.WriteMeta("name", []byte("kept")), d.Sync(), d.Close())
	d = s.reopen(t, d)
	defer closeDevice(t, d)
	if got, err := d.ReadMeta("name"); err != nil || string(got) != "kept" {
		t.Errorf("metadata after the restart: %q, %v", got, err)
	}
	if prepared {
		newest := s.size/8*7 + 13
		must(t, device.Prepare(d, int64(newest)))
		p := NewPump(t, d, 16)
		p.Read(make([]byte, newest-begin), int64(begin), model[begin:newest])
		p.Close()
	}
	must(t, d.Start(int64(tail)))
	if got := d.Begin(); got != int64(begin) {
		t.Errorf("Begin after the restart is %d, want %d", got, begin)
	}
	p := NewPump(t, d, 16)
	defer p.Close()
	p.Read(make([]byte, tail-begin), int64(begin), model[begin:tail])
	p.ReadFails(make([]byte, 1), int64(begin)-1, device.ErrNotHeld)
	p.ReadFails(make([]byte, 1), int64(s.size-1), device.ErrNotHeld)
	p.Drain()
	// The log continues at the start of the page that contains the tail.
	align := d.Alignment()
	more := content(7, s.size)
	at := tail &^ (align - 1)
	copy(more, model[at:tail])
	src := device.AlignedBuffer(s.size, align)
	copy(src, more)
	p.Write(src, int64(at), nil)
	p.Drain()
	p.Read(make([]byte, s.size), int64(at), more)
}
