package uring

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// patience is the timeout of every wait.
var patience = testrun.Patience(30 * time.Second)

func newTestRing(t testing.TB, depth int) *Ring {
	t.Helper()
	if err := Probe(); err != nil {
		t.Skip(err)
	}
	r, err := New(depth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// collect waits for n completions, by tag.
func collect(t testing.TB, r *Ring, n int) map[uint64]int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got := make(map[uint64]int32)
	for done := make([]Completion, 3); len(got) < n; {
		if err := r.Wait(ctx); err != nil {
			t.Fatalf("with %d of %d completions: %v", len(got), n, err)
		}
		for _, c := range done[:r.Reap(done)] {
			if _, twice := got[c.Tag]; twice {
				t.Fatalf("second completion of %d: %d", c.Tag, c.Res)
			}
			got[c.Tag] = c.Res
		}
	}
	return got
}

func tempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err == nil {
		_, err = f.Write(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// pipe returns a file whose reads end when the test writes. It is in blocking mode, because a
// ring would return EAGAIN otherwise.
func pipe(t testing.TB) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func send(t testing.TB, fd int, text string) {
	t.Helper()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Error(err)
	}
}

func TestOutcomes(t *testing.T) {
	r := newTestRing(t, 8)
	f := tempFile(t, []byte("0123456789"))
	readOnly, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = readOnly.Close() }()
	fd := int(f.Fd())
	whole, short, beyond := make([]byte, 4), make([]byte, 20), make([]byte, 4)
	r.Read(fd, whole, 3, 0)
	r.Read(fd, short, 5, 1)
	r.Read(fd, beyond, 1000, 2)
	r.Read(-1, whole[:0], 0, 3)
	r.Write(int(readOnly.Fd()), []byte("no"), 0, 4)
	r.Write(fd, []byte("yes"), 100, 5)
	r.Read(fd, nil, 0, 6)
	want := map[uint64]int32{0: 4, 1: 5, 2: 0, 3: -int32(unix.EBADF), 4: -int32(unix.EBADF), 5: 3, 6: 0}
	got := collect(t, r, len(want))
	for tag, res := range want {
		if got[tag] != res {
			t.Errorf("operation %d ends with %d, want %d", tag, got[tag], res)
		}
	}
	if string(whole) != "3456" || string(short[:5]) != "56789" {
		t.Errorf("read %q and %q", whole, short[:5])
	}
	if content, err := os.ReadFile(f.Name()); err != nil || !bytes.HasSuffix(content, []byte("yes")) || len(content) != 103 {
		t.Errorf("file holds %q, %v", content, err)
	}
}

func TestDepths(t *testing.T) {
	for _, depth := range []int{-1, 0, MaxDepth + 1} {
		if r, err := New(depth); err == nil {
			t.Errorf("a ring for %d operations", depth)
			_ = r.Close()
		}
	}
	content := make([]byte, 8*5000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	f := tempFile(t, content)
	for _, depth := range []int{1, 2, 3, 64, 5000} {
		r := newTestRing(t, depth)
		got := make([]byte, 8*depth)
		for round := range 2 {
			clear(got)
			for i := range depth {
				if !r.Read(int(f.Fd()), got[8*i:8*i+8], int64(8*i), uint64(i)) {
					t.Fatalf("depth %d, round %d: no room for operation %d", depth, round, i)
				}
			}
			if r.Read(int(f.Fd()), got[:8], 0, 0) {
				t.Fatalf("depth %d: room for one more", depth)
			}
			if n := r.Pending(); n != depth {
				t.Errorf("%d operations pending, want %d", n, depth)
			}
			for tag, res := range collect(t, r, depth) {
				if res != 8 {
					t.Fatalf("depth %d: operation %d ends with %d", depth, tag, res)
				}
			}
			if !bytes.Equal(got, content[:len(got)]) {
				t.Errorf(testrun.WrongMark+" depth %d, round %d: wrong bytes", depth, round)
			}
		}
	}
}

// TestSmallCompletionRing: completions beyond the ring's size are not lost.
func TestSmallCompletionRing(t *testing.T) {
	newTestRing(t, 1) // skips the test if there is no io_uring
	const depth = 200
	r, err := newRing(depth, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	content := make([]byte, depth)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(content) // never fails
	f := tempFile(t, content)
	got := make([]byte, depth)
	overflown := false
	for i := range depth {
		if !r.Read(int(f.Fd()), got[i:i+1], int64(i), uint64(i)) {
			t.Fatalf("no room for operation %d", i)
		}
		if err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		overflown = overflown || r.overflown()
	}
	if !overflown {
		t.Error("nothing overflowed")
	}
	collect(t, r, depth)
	if !bytes.Equal(got, content) {
		t.Error(testrun.WrongMark, "wrong bytes")
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	r := newTestRing(t, 2)
	from, to := pipe(t)
	buf := make([]byte, 4)
	r.Read(from, buf, -1, 7)
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Millisecond, cancel)
		if err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
			// A wait may return early, but a later one must return the error.
			for err == nil {
				err = r.Wait(ctx)
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that is over: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	for err := error(nil); !errors.Is(err, context.DeadlineExceeded); err = r.Wait(ctx) {
		if err != nil {
			t.Fatal(err)
		}
	}
	send(t, to, "late")
	if res := collect(t, r, 1)[7]; res != 4 || string(buf) != "late" {
		t.Errorf("%d bytes, %q", res, buf)
	}
}

func TestWake(t *testing.T) {
	r := newTestRing(t, 1)
	r.Wake()
	r.Wake() // a second Wake has no further effect
	if err := r.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	from, to := pipe(t)
	var buf [1]byte
	r.Read(from, buf[:], -1, 0)
	for range 100 {
		go r.Wake()
		if err := r.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := r.Reap(make([]Completion, 1)); n != 0 {
			t.Fatal("a wake is no completion")
		}
	}
	send(t, to, "x")
	collect(t, r, 1)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	r.Wake()
}

// TestThreadEnds: submitted operations complete even if their thread has ended; the kernel may
// cancel them.
func TestThreadEnds(t *testing.T) {
	r := newTestRing(t, 1)
	from, to := pipe(t)
	buf := make([]byte, 1)
	var ended sync.WaitGroup
	ended.Go(func() {
		runtime.LockOSThread() // not unlocked, so the thread ends with the goroutine
		r.Read(from, buf, -1, 3)
		if err := r.Submit(); err != nil {
			t.Error(err)
		}
	})
	ended.Wait()
	send(t, to, "x")
	if res := collect(t, r, 1)[3]; res != 1 && res != -int32(unix.ECANCELED) || res == 1 && buf[0] != 'x' {
		t.Errorf("ends with %d, %q", res, buf)
	}
}

// TestInterrupts: signals that interrupt system calls have no visible effect.
func TestInterrupts(t *testing.T) {
	r := newTestRing(t, 4)
	from, to := pipe(t)
	stop := make(chan struct{})
	var shooter sync.WaitGroup
	shooter.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Kill(unix.Getpid(), unix.SIGURG) // Go's runtime ignores unexpected SIGURG
				runtime.Gosched()
			}
		}
	})
	buf := make([]byte, 3)
	for range 500 {
		r.Read(from, buf, -1, 1)
		if err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		go send(t, to, "abc")
		// A read of a pipe may itself be interrupted.
		for res := collect(t, r, 1)[1]; res != 3; res = collect(t, r, 1)[1] {
			if res != -int32(unix.EINTR) {
				t.Fatalf("ends with %d", res)
			}
			r.Read(from, buf, -1, 1)
		}
	}
	close(stop)
	shooter.Wait()
}

// TestDropped: the buffers of an unreachable ring stay allocated while the kernel fills them.
func TestDropped(t *testing.T) {
	from, to := pipe(t)
	type memory struct{ bytes [100]byte }
	ring, buf := func() (weak.Pointer[Ring], weak.Pointer[memory]) {
		newTestRing(t, 1) // skips the test if there is no io_uring
		r, err := New(1)
		if err != nil {
			t.Fatal(err)
		}
		m := new(memory)
		r.Read(from, m.bytes[:], -1, 1)
		if err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		return weak.Make(r), weak.Make(m)
	}()
	for range 5 {
		runtime.GC()
	}
	if ring.Value() == nil || buf.Value() == nil {
		t.Fatal("the garbage collector has what the kernel has")
	}
	send(t, to, "filled")
	r := ring.Value()
	if res := collect(t, r, 1)[1]; res != 6 || string(buf.Value().bytes[:6]) != "filled" {
		t.Errorf("ends with %d, %q", res, buf.Value().bytes[:6])
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for range 5 {
		runtime.GC()
	}
	if ring.Value() != nil || buf.Value() != nil {
		t.Error("a closed ring is still held")
	}
}

// TestCloseWaits: Close returns when the kernel no longer uses any buffer.
func TestCloseWaits(t *testing.T) {
	r := newTestRing(t, 3)
	from, to := pipe(t)
	buf := make([]byte, 6)
	r.Read(from, buf, -1, 1)
	if err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	never := []byte("kept")
	r.Read(from, never, -1, 2) // not submitted, so never started
	go send(t, to, "closed")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if string(buf) != "closed" || string(never) != "kept" {
		t.Errorf("after Close: %q, %q", buf, never)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestRetract: after a ring failed, all operations that were not started can be retracted.
func TestRetract(t *testing.T) {
	r := newTestRing(t, 10)
	f := tempFile(t, []byte("content"))
	r.enter = func(int, uint32, uint32, uintptr, *waitArg) (uint32, unix.Errno) { return 0, unix.EBADF }
	var buf [7]byte
	for i := range 10 {
		r.Read(int(f.Fd()), buf[:], 0, uint64(i))
	}
	if err := r.Submit(); !errors.Is(err, unix.EBADF) {
		t.Errorf("Submit: %v", err)
	}
	if err := r.Wait(context.Background()); !errors.Is(err, unix.EBADF) {
		t.Errorf("Wait: %v", err)
	}
	for want := 9; want >= 0; want-- {
		if tag, ok := r.Retract(); !ok || tag != uint64(want) {
			t.Errorf("retracted %d, %v, want %d", tag, ok, want)
		}
	}
	if tag, ok := r.Retract(); ok || r.Pending() != 0 {
		t.Errorf("retracted %d, which was not enqueued; %d pending", tag, r.Pending())
	}
	r.enter = enter
	r.Read(int(f.Fd()), buf[:], 0, 5)
	if res := collect(t, r, 1)[5]; res != 7 || string(buf[:]) != "content" {
		t.Errorf("afterwards: %d, %q", res, buf)
	}
}

// TestBusyKernel: operations for which the kernel has no memory are submitted later.
func TestBusyKernel(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EAGAIN, unix.EBUSY, unix.EINTR} {
		r := newTestRing(t, 4)
		refusals := 5
		r.enter = func(fd int, submit, wait uint32, flags uintptr, arg *waitArg) (uint32, unix.Errno) {
			if submit > 0 && refusals > 0 {
				refusals--
				return 0, errno
			}
			return enter(fd, min(submit, 1), wait, flags, arg)
		}
		f := tempFile(t, []byte("0123"))
		var buf [4]byte
		for i := range 4 {
			r.Read(int(f.Fd()), buf[i:i+1], int64(i), uint64(i))
		}
		if err := r.Submit(); err != nil {
			t.Fatal(err)
		}
		collect(t, r, 4)
		if string(buf[:]) != "0123" || refusals > 0 {
			t.Errorf("%v: read %q, %d refusals left", errno, buf, refusals)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	r := newTestRing(t, 8)
	f := tempFile(t, make([]byte, 4096))
	buf := make([]byte, 4096)
	done := make([]Completion, 8)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	round := func() {
		for i := range 8 {
			r.Read(int(f.Fd()), buf[512*i:512*i+512], int64(512*i), uint64(i))
		}
		for n := 0; n < 8; n += r.Reap(done) {
			if err := r.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 {
		round()
	}
	if allocs := testrun.AllocsPerRun(100, round); allocs >= 1 {
		t.Errorf("%v allocations for 8 reads", allocs)
	}
}

// FuzzRing runs a script of operations, each on a separate part of a file, and compares the
// file with the expected contents.
func FuzzRing(f *testing.F) {
	f.Add(uint8(3), []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	f.Add(uint8(0), []byte("a ring of one"))
	f.Add(uint8(200), bytes.Repeat([]byte{1, 6, 11, 0, 5, 10, 2, 3, 4}, 40))
	f.Fuzz(func(t *testing.T, depth uint8, script []byte) {
		const parts, part = 16, 6000
		r := newTestRing(t, int(depth)+1)
		want := make([]byte, parts*part)
		_, _ = rand.NewChaCha8([32]byte{depth}).Read(want) // never fails
		file := tempFile(t, want)
		type pending struct{ dst, want []byte }
		under := make(map[uint64]pending)
		settle := func(c Completion) {
			p, ok := under[c.Tag]
			if !ok {
				t.Fatalf("completion %+v of nothing", c)
			}
			delete(under, c.Tag)
			if int(c.Res) != len(p.want) || !bytes.Equal(p.dst, p.want) {
				t.Fatalf("operation on part %d: %d of %d bytes, or wrong ones", c.Tag, c.Res, len(p.want))
			}
		}
		var done [5]Completion
		for i, b := range script {
			tag := uint64(b/5) % parts
			at := int(tag)*part + i%100
			n := 1 + (int(b)*37+i)%(part-100)
			_, busy := under[tag]
			switch b % 5 {
			case 0, 1:
				if busy {
					continue
				}
				p := pending{make([]byte, n), want[at : at+n]}
				var ok bool
				if b%5 == 0 {
					ok = r.Read(int(file.Fd()), p.dst, int64(at), tag)
				} else {
					_, _ = rand.NewChaCha8([32]byte{b, byte(i)}).Read(p.dst) // never fails
					if ok = r.Write(int(file.Fd()), p.dst, int64(at), tag); ok {
						copy(p.want, p.dst)
					}
				}
				if ok != (len(under) <= int(depth)) {
					t.Fatalf("with %d of %d pending: %v", len(under), depth+1, ok)
				}
				if ok {
					under[tag] = p
				}
			case 2:
				if err := r.Submit(); err != nil {
					t.Fatal(err)
				}
			case 3:
				if len(under) == 0 {
					r.Wake()
				}
				if err := r.Wait(context.Background()); err != nil {
					t.Fatal(err)
				}
			case 4:
				for _, c := range done[:r.Reap(done[:])] {
					settle(c)
				}
			}
		}
		for len(under) > 0 {
			if err := r.Wait(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, c := range done[:r.Reap(done[:])] {
				settle(c)
			}
		}
		testrun.Bytes(os.ReadFile(file.Name())).Want(t, want, "the file")
	})
}
