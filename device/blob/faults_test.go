package blob

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gcblob "gocloud.dev/blob"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// filled returns a device with n random bytes, all of them in the bucket.
func filled(t *testing.T, local device.Device, b *gcblob.Bucket, opts Options, n int) (*Device, []byte) {
	t.Helper()
	d := mustOpen(t, local, b, opts)
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(content) // never fails
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	p := devicetest.NewPump(t, d, 4)
	src := device.AlignedBuffer(n, d.Alignment())
	copy(src, content)
	p.Write(src, 0, nil)
	p.Close()
	if err := errors.Join(d.Sync(), d.WriteMeta("meta", []byte("data"))); err != nil {
		t.Fatal(err)
	}
	flush(t, d)
	return d, content
}

// read reads n bytes at an address.
func read(t *testing.T, d device.Device, n int, addr int64) ([]byte, error) {
	t.Helper()
	dst := make([]byte, n)
	return dst, devicetest.Read(t, d, dst, addr).Err
}

// TestUnreliable: uploads and reads succeed although requests fail, connections break and
// answers are cut short.
func TestUnreliable(t *testing.T) {
	s3 := newS3(t)
	r := rand.New(rand.NewPCG(1, 1))
	s3.set(func(n int64, _ *http.Request) int {
		switch (uint64(n) * 0x9e3779b97f4a7c15) >> 61 { // pseudo-random, from the request's number
		case 0:
			return http.StatusServiceUnavailable
		case 1:
			return http.StatusInternalServerError
		case 2:
			return -1
		}
		return 0
	})
	b := openBucket(t, s3.url())
	d, content := filled(t, device.NewMemory(), b, testOptions(), 5*minSegmentSize+777)
	closeAll(t, d)
	d = mustOpen(t, device.NewMemory(), b, testOptions())
	defer closeAll(t, d)
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	p := devicetest.NewPump(t, d, 16)
	for range 20 {
		from := r.IntN(len(content))
		to := from + 1 + r.IntN(min(len(content)-from, 20_000))
		p.Read(make([]byte, to-from), int64(from), content[from:to])
	}
	p.Close()
}

// TestUnreachable: if the bucket refuses all requests, writes succeed, and reads from it fail
// with a clear error.
func TestUnreachable(t *testing.T) {
	s3 := newS3(t)
	b := openBucket(t, s3.url())
	opts := testOptions()
	opts.Linger = -1
	d, content := filled(t, device.NewMemory(), b, opts, 2*minSegmentSize)
	closeAll(t, d)
	d = mustOpen(t, device.NewMemory(), b, opts)
	defer closeAll(t, d)
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	s3.set(func(int64, *http.Request) int { return http.StatusForbidden })
	if _, err := read(t, d, 100, 5000); err == nil || !bytes.Contains([]byte(err.Error()), []byte("segment/")) {
		t.Errorf("%v, want an error that names the blob", err)
	}
	more := make([]byte, 1000)
	p := devicetest.NewPump(t, d, 1)
	p.Write(bytes.Clone(more), int64(len(content)), nil)
	p.Drain()
	p.Read(make([]byte, 1000), int64(len(content)), more)
	p.Close()
	if err := errors.Join(d.Sync(), d.WriteMeta("meta", []byte("more"))); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush: %v", err)
	}
	if s := d.Status(); !s.Behind {
		t.Errorf("%+v", s)
	}
}

// TestEmpty: Status tells a bucket that never had a state from one that cannot be reached.
func TestEmpty(t *testing.T) {
	s3 := newS3(t)
	b := openBucket(t, s3.url())
	opts, local := testOptions(), device.NewMemory()
	opts.Linger = -1
	s3.set(func(_ int64, r *http.Request) int {
		if r.Method == http.MethodPut {
			return http.StatusForbidden
		}
		return 0
	})
	d := mustOpen(t, local, b, opts)
	if err := errors.Join(d.Start(0), d.WriteMeta("meta", []byte("data"))); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "an upload fails", func() bool { return d.Status().Err != nil })
	if s := d.Status(); !s.Empty {
		t.Errorf("%+v, want an empty bucket", s)
	}
	s3.set(func(int64, *http.Request) int { return 0 })
	flush(t, d)
	if s := d.Status(); s.Empty || s.Err != nil {
		t.Errorf("%+v, want no empty bucket", s)
	}
	closeAll(t, d)
	s3.set(func(int64, *http.Request) int { return http.StatusForbidden })
	d = mustOpen(t, local.Reopen(), b, opts)
	defer closeAll(t, d)
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "an upload fails again", func() bool { return d.Status().Err != nil })
	if s := d.Status(); s.Empty {
		t.Errorf("%+v, want no empty bucket", s)
	}
}

// TestDamagedLocal: bytes that the SSD has lost or altered are read from the bucket.
func TestDamagedLocal(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"altered": func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, "000000000001.seg"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("altered"), 9000)
			return errors.Join(err, f.Close())
		},
		"removed": func(dir string) error { return os.Remove(filepath.Join(dir, "000000000001.seg")) },
	} {
		t.Run(name, func(t *testing.T) {
			b := memBucket(t)
			ssd := openSSD(t, t.TempDir())
			d, content := filled(t, ssd, b, testOptions(), 3*minSegmentSize)
			closeAll(t, d)
			if err := damage(ssd.Dir()); err != nil {
				t.Fatal(err)
			}
			d = mustOpen(t, openSSD(t, ssd.Dir()), b, testOptions())
			defer closeAll(t, d)
			if err := d.Start(int64(len(content))); err != nil {
				t.Fatal(err)
			}
			p := devicetest.NewPump(t, d, 8)
			for at := 0; at < len(content); at += 10_000 {
				n := min(10_000, len(content)-at)
				p.Read(make([]byte, n), int64(at), content[at:at+n])
			}
			p.Close()
			if s := d.Status(); s.Repairs == 0 || s.BytesDown == 0 {
				t.Errorf("%+v, want reads of the bucket", s)
			}
		})
	}
}

// TestDamagedBucket: altered bytes are never returned, and the error names the blob.
func TestDamagedBucket(t *testing.T) {
	b := memBucket(t)
	opts := testOptions()
	opts.Patience = time.Millisecond
	d, content := filled(t, device.NewMemory(), b, opts, 2*minSegmentSize)
	closeAll(t, d)
	d = mustOpen(t, device.NewMemory(), b, opts)
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	flush(t, d)
	key := d.catalog.Load().Pieces[1].Key
	blob, err := b.ReadAll(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) {
		t.Helper()
		if err := b.WriteAll(t.Context(), key, data, nil); err != nil {
			t.Fatal(err)
		}
	}
	altered, moved := bytes.Clone(blob), bytes.Clone(blob)
	altered[2*blockStride+100] ^= 1
	copy(moved[2*blockStride:], blob[3*blockStride:4*blockStride])
	for name, data := range map[string][]byte{"altered": altered, "moved": moved, "cut short": blob[:2*blockStride+50]} {
		put(data)
		for block := range 4 {
			addr := int64(minSegmentSize + block*blockSize)
			got, err := read(t, d, 10, addr)
			if block == 2 || block == 3 && name == "cut short" {
				if !errors.Is(err, device.ErrCorrupt) || !bytes.Contains([]byte(err.Error()), []byte(key)) {
					t.Errorf("%s, block %d: %v, want ErrCorrupt and the name", name, block, err)
				}
				continue
			}
			testrun.Bytes(got, err).Want(t, content[addr:addr+10], "%s, block %d", name, block)
		}
	}
	if err := b.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, d, 10, minSegmentSize); err == nil || errors.Is(err, device.ErrNotHeld) {
		t.Errorf("a blob that is gone: %v", err)
	}
	put(blob)
	closeAll(t, d)

	// The catalog itself is damaged.
	catalog := catalogKey(d.catalog.Load().Number)
	data, err := b.ReadAll(t.Context(), catalog)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := b.WriteAll(t.Context(), catalog, data, nil); err != nil {
		t.Fatal(err)
	}
	local := device.NewMemory()
	if d, err := Open(t.Context(), local, b, opts); !errors.Is(err, device.ErrCorrupt) {
		t.Errorf("with a damaged catalog: %v, %v", d, err)
	}
	closeAll(t, local)
}

// TestOtherFormat: a catalog of a later version is reported at once, unlike a catalog that
// cannot be read now.
func TestOtherFormat(t *testing.T) {
	s3 := newS3(t)
	b := openBucket(t, s3.url())
	c := &catalog{Format: catalogFormat + 1, Number: 1}
	data, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.WriteAll(t.Context(), catalogKey(1), data, nil); err != nil {
		t.Fatal(err)
	}
	retries := 0
	own := &bucket{Bucket: b, patience: time.Minute, retried: func(string, error) { retries++ }}
	if c, err := own.readCatalog(t.Context(), 1); !errors.Is(err, ErrFormat) || c != nil || retries != 0 {
		t.Errorf("%v, %v after %d tries more", c, err, retries)
	}
	s3.set(func(int64, *http.Request) int { return -1 })
	own.patience = time.Millisecond
	if c, err := own.readCatalog(t.Context(), 1); err == nil || errors.Is(err, ErrFormat) || c != nil {
		t.Errorf("without a connection: %v, %v", c, err)
	}
}

// putObject stores the object o.
func putObject(d *Device, text string) error {
	w, err := d.CreateObject("o")
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	return w.Commit()
}

// wantObject checks the object o of a bucket.
func wantObject(t *testing.T, b *gcblob.Bucket, text string) {
	t.Helper()
	d := mustOpen(t, device.NewMemory(), b, testOptions()) // not started, so it does not take over the bucket
	defer closeAll(t, d)
	o, err := d.OpenObject("o")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	got := make([]byte, o.Size())
	if n, err := o.ReadAt(got, 0); n < len(got) || string(got) != text {
		t.Errorf("%q, %v, want %q", got, err, text)
	}
}

// TestObjectReplacedMeanwhile: if an object is replaced while it is uploaded, the bucket gets the new
// one with the next upload, whether it had one before or not.
func TestObjectReplacedMeanwhile(t *testing.T) {
	s3 := newS3(t)
	b := openBucket(t, s3.url())
	d, _ := filled(t, device.NewMemory(), b, testOptions(), 1000)
	defer closeAll(t, d)
	var next atomic.Pointer[string]
	s3.set(func(_ int64, r *http.Request) int {
		if text := next.Load(); text != nil && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/object") {
			if err := putObject(d, *text); err != nil {
				t.Error(err)
			}
			next.Store(nil) // the upload goes on, and the test
		}
		return 0
	})
	for _, texts := range [][2]string{{"first", "other"}, {"third", "after"}} {
		next.Store(&texts[1])
		if err := putObject(d, texts[0]); err != nil {
			t.Fatal(err)
		}
		testrun.Until(t, "the object is being uploaded", func() bool { return next.Load() == nil })
		flush(t, d)
		wantObject(t, b, texts[1])
	}
}

// TestObjectReplaced: if an object is replaced between two uploads or two processes, the
// bucket gets the new one.
func TestObjectReplaced(t *testing.T) {
	b := memBucket(t)
	d, _ := filled(t, device.NewMemory(), b, testOptions(), 1000)
	put := func(d *Device, text string) {
		t.Helper()
		if err := putObject(d, text); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) { t.Helper(); wantObject(t, b, text) }
	put(d, "first")
	flush(t, d)
	want("first")
	put(d, "other")
	flush(t, d)
	want("other")
	local := d.local.(*device.Memory)
	d.up.finish(-1) // the process crashes ...
	put(d, "third") // ... after this
	d.reads.Close()
	d = mustOpen(t, local.Reopen(), b, testOptions())
	defer closeAll(t, d)
	if err := d.Start(1000); err != nil {
		t.Fatal(err)
	}
	flush(t, d)
	want("third")
	if err := d.RemoveObject("o"); err != nil {
		t.Fatal(err)
	}
	flush(t, d)
	if c := d.catalog.Load(); len(c.Objects) != 0 {
		t.Errorf("%+v", c.Objects)
	}
}

// TestInterruptedRestore: an interrupted restore starts again.
func TestInterruptedRestore(t *testing.T) {
	b := memBucket(t)
	m := mustStart(t, b)
	m.write(5000)
	m.mustClose()
	for k := int64(1); ; k++ {
		memory := device.NewMemory()
		d, err := Open(t.Context(), device.NewFaulty(memory, device.FaultyOptions{FailWrite: k}), b, testOptions())
		if err == nil {
			closeAll(t, d)
			break
		}
		if !errors.Is(err, device.ErrFault) {
			t.Fatal(err)
		}
		d = mustOpen(t, memory, b, testOptions())
		if got, err := d.ReadMeta("store"); err != nil || len(got) == 0 {
			t.Errorf("after a restore that failed at write %d: %q, %v", k, got, err)
		}
		closeAll(t, d)
		if k > 100 {
			t.Fatal("it fails for ever")
		}
	}
}

func TestBadArguments(t *testing.T) {
	for _, opts := range []Options{
		{SegmentSize: 1000}, {SegmentSize: 1 << 40}, {Every: -1}, {Patience: -1}, {Readers: -1}, {Readers: 1 << 20},
	} {
		if d, err := Open(t.Context(), device.NewMemory(), memBucket(t), opts); err == nil {
			t.Errorf("%+v: no error", opts)
			closeAll(t, d)
		}
	}
	if d, err := OpenURL(t.Context(), device.NewMemory(), "tape://here", Options{}); err == nil || !bytes.Contains([]byte(err.Error()), []byte("tape://here")) {
		t.Errorf("%v, %v", d, err)
	}
	d := mustOpen(t, device.NewMemory(), memBucket(t), testOptions())
	defer closeAll(t, d)
	if err := d.WriteMeta(stateName, nil); err == nil {
		t.Error("somebody else's metadata under our name")
	}
	if d, err := Open(t.Context(), device.NewMemoryWith(device.MemoryOptions{Volatile: true}), memBucket(t), Options{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("over a volatile device: %v, %v", d, err)
	}
}

var _ device.CacheUser = (*Device)(nil)

// TestWriteNeverBegan: a write that the local device's queue had no room for is not uploaded.
func TestWriteNeverBegan(t *testing.T) {
	d := mustOpen(t, noRoom{device.NewMemory()}, memBucket(t), testOptions())
	defer closeAll(t, d)
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQueue(2)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, q)
	if err := q.Write(make([]byte, 100), 0, 1); !errors.Is(err, device.ErrQueueFull) {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if low := d.log.writes.Written(); low != 0 {
		t.Errorf("the log is there up to %d", low)
	}
}

// noRoom is a device whose queues accept no writes.
type noRoom struct{ device.Device }

func (n noRoom) NewQueue(depth int) (device.Queue, error) {
	q, err := n.Device.NewQueue(depth)
	return noRoomQueue{q}, err
}

type noRoomQueue struct{ device.Queue }

func (noRoomQueue) Write([]byte, int64, uint64) error { return device.ErrQueueFull }

// TestTruncateAgain: what the local device could not remove is removed by the same call again.
func TestTruncateAgain(t *testing.T) {
	local := &unwilling{Device: device.NewMemory(), err: device.ErrFault}
	d, _ := filled(t, local, memBucket(t), testOptions(), 2*minSegmentSize)
	defer closeAll(t, d)
	if err := d.Truncate(minSegmentSize); !errors.Is(err, device.ErrFault) || d.Begin() != minSegmentSize {
		t.Errorf("of a local device that cannot: %v; begin %d", err, d.Begin())
	}
	local.err = nil
	if err := d.Truncate(minSegmentSize); err != nil || local.asked != 2 {
		t.Errorf("again: %v; the local device was asked %d times", err, local.asked)
	}
}

// unwilling is a device whose Truncate returns an error too, if there is one.
type unwilling struct {
	device.Device
	err   error
	asked int
}

func (d *unwilling) Truncate(begin int64) error {
	d.asked++
	return errors.Join(d.err, d.Device.Truncate(begin))
}

// TestUnreachableAtOpen: a bucket that is unreachable when its device is opened gets what it lacks afterwards, not the
// whole log again.
func TestUnreachableAtOpen(t *testing.T) {
	s3 := newS3(t)
	b := openBucket(t, s3.url())
	opts := testOptions()
	opts.Patience, opts.Linger = time.Millisecond, time.Millisecond
	local := device.NewMemory()
	const segments = 20
	d, content := filled(t, local, b, opts, segments*minSegmentSize)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	s3.set(func(int64, *http.Request) int { return http.StatusForbidden })
	local = local.Reopen()
	d = mustOpen(t, local, b, opts)
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	s3.set(func(int64, *http.Request) int { return 0 })
	if err := d.WriteMeta("meta", []byte("newer")); err != nil {
		t.Fatal(err)
	}
	flush(t, d)
	if s := d.Status(); s.LogEnd != int64(len(content)) || s.BytesUp > 3*minSegmentSize {
		t.Errorf("%d bytes were uploaded again, and the bucket has the log up to %d, of %d bytes", s.BytesUp, s.LogEnd, len(content))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, device.NewMemory(), b, opts)
	if err := again.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(read(t, again, len(content), 0)).Want(t, content, "restored elsewhere")
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
