package ssdtier

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// spareFiles returns the segments that are kept for reuse.
func spareFiles(t *testing.T, d *Device) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.Dir(), "*"+segmentSuffix+tempSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// inode returns the file behind a name.
func inode(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestRecycle: a truncated segment's file is reused for a later segment. None of its old bytes
// can be read there, while the log continues and after a crash.
func TestRecycle(t *testing.T) { overEngines(t, testRecycle) }

func testRecycle(t *testing.T) {
	for _, verify := range Verifies {
		opts := Options{SegmentSize: minSegmentSize, Verify: verify}
		d := started(t, opts)
		content := fill(t, d, 3*minSegmentSize)
		old := inode(t, d.path(segmentName(0)))
		if err := errors.Join(d.Sync(), d.Truncate(2*minSegmentSize)); err != nil {
			t.Fatal(err)
		}
		if n := len(spareFiles(t, d)); n != 1 {
			t.Fatalf("of two segments %d are kept, want 1", n)
		}
		block := bytes.Repeat([]byte("new bytes"), sumUnit)[:sumUnit]
		if err := writeBlocks(t, d, block, 3*minSegmentSize); err != nil {
			t.Fatal(err)
		}
		if n := len(spareFiles(t, d)); n != 0 || !os.SameFile(old, inode(t, d.path(segmentName(3)))) {
			t.Errorf("the next segment is another file, and %d are kept", n)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		const tail = 3*minSegmentSize + sumUnit
		check := func(d *Device) {
			t.Helper()
			testrun.Bytes(readAll(t, d, 2*minSegmentSize, tail)).Want(t, append(content[2*minSegmentSize:], block...), "read")
			for _, at := range []int64{0, 1000, minSegmentSize, tail, tail + 5000, 4*minSegmentSize - 10} {
				if got, err := readAll(t, d, at, at+10); !errors.Is(err, device.ErrNotHeld) {
					t.Errorf("reading at %d: %q, %v, want ErrNotHeld", at, got, err)
				}
			}
		}
		check(d)
		dir := t.TempDir()
		c := &crashed{t: t, d: d}
		for name, data := range c.files() {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		d = mustOpen(t, dir, opts)
		if err := d.Start(tail); err != nil {
			t.Fatal(err)
		}
		check(d)
	}
}

// TestRecycleWaits: a file is not reused while a read uses it.
func TestRecycleWaits(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 2*minSegmentSize)
	old := d.segments.get(0)
	if !old.acquire() { // as a read does
		t.Fatal("the segment is closed")
	}
	if err := d.Truncate(minSegmentSize); err != nil {
		t.Fatal(err)
	}
	if err := writeBlocks(t, d, content[:sumUnit], 2*minSegmentSize); err != nil {
		t.Fatal(err)
	}
	if n := len(spareFiles(t, d)); n != 1 {
		t.Fatalf("%d files are kept, want 1", n)
	}
	buf := device.AlignedBuffer(sumUnit, d.Alignment())
	err := old.read(buf, 0, sumUnit)
	testrun.Bytes(buf, err).Want(t, content[:sumUnit], "the segment of before")
	old.release()
	if err := writeBlocks(t, d, content[:sumUnit], 3*minSegmentSize); err != nil {
		t.Fatal(err)
	}
	if n := len(spareFiles(t, d)); n != 0 {
		t.Errorf("%d files are kept though one is not read any more", n)
	}
}

// TestRecycleEnds: Close removes spare files, and Open removes those that a crash left.
// Without recycling no file is kept.
func TestRecycleEnds(t *testing.T) {
	for kept, opts := range []Options{
		{SegmentSize: minSegmentSize, Recycle: -1}, {SegmentSize: minSegmentSize}, {SegmentSize: minSegmentSize, Recycle: 2},
	} {
		d := started(t, opts)
		fill(t, d, 5*minSegmentSize)
		if err := d.Truncate(4 * minSegmentSize); err != nil {
			t.Fatal(err)
		}
		if n := len(spareFiles(t, d)); n != kept {
			t.Errorf("Recycle %d: %d files are kept, want %d", opts.Recycle, n, kept)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(spareFiles(t, d)); n != 0 {
			t.Errorf("%d files are kept by Close", n)
		}
		left := d.path(segmentName(2) + tempSuffix)
		if err := os.WriteFile(left, make([]byte, minSegmentSize), 0o666); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, d.Dir(), opts)
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what a crash left is there after opening: %v", err)
		}
	}
}

// The next Truncate removes what one could not.
func TestTruncateAgain(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize, Recycle: -1})
	fill(t, d, 3*minSegmentSize)
	path := d.path(segmentName(0))
	inWay := filepath.Join(path, "file")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o777), os.WriteFile(inWay, nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := d.Truncate(minSegmentSize); !errors.Is(err, syscall.ENOTEMPTY) || d.Begin() != minSegmentSize {
		t.Errorf("of a file that cannot be removed: %v; begin %d", err, d.Begin())
	}
	if err := os.Remove(inWay); err != nil {
		t.Fatal(err)
	}
	if err := d.Truncate(minSegmentSize); err != nil {
		t.Error(err)
	}
	for _, path := range []string{path, d.path(sumName(0))} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestVerifyBlocks: a read that contains a whole block is verified. A shorter one is not, and
// reads sectors. Neither returns bytes that were never written.
func TestVerifyBlocks(t *testing.T) { overEngines(t, testVerifyBlocks) }

func testVerifyBlocks(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		d := started(t, Options{SegmentSize: minSegmentSize, Verify: VerifyBlocks, Buffered: buffered})
		content := fill(t, d, 2*minSegmentSize-2*sumUnit)
		for _, n := range []int{1, 8, 511, 512, 513, sumUnit - 1, sumUnit, sumUnit + 1, 2*sumUnit - 2, 2*sumUnit - 1, 2 * sumUnit, 5*sumUnit + 7} {
			for _, at := range []int{0, 1, 511, 512, sumUnit - 1, sumUnit, 7*sumUnit - 3, minSegmentSize - 1, minSegmentSize - sumUnit, minSegmentSize} {
				testrun.Bytes(readAll(t, d, int64(at), int64(at+n))).Want(t, content[at:at+n], "%d bytes at %d", n, at)
			}
		}
		alter(t, d.path(segmentName(0)), 3*sumUnit+100)
		for _, tc := range []struct {
			from, to int64
			err      error
		}{
			{3*sumUnit + 100, 3*sumUnit + 101, nil},
			{3*sumUnit + 600, 4 * sumUnit, nil},
			{2*sumUnit + 600, 4*sumUnit - 600, nil},
			{3 * sumUnit, 4 * sumUnit, device.ErrCorrupt},
			{2*sumUnit + 1, 4 * sumUnit, device.ErrCorrupt},
			{sumUnit, 3*sumUnit + 1, device.ErrCorrupt}, // a read with one whole block verifies its partial blocks too
			{2*minSegmentSize - 2*sumUnit - 1, 2*minSegmentSize - 2*sumUnit + 1, device.ErrNotHeld},
			{2*minSegmentSize - 100, 2*minSegmentSize - 50, device.ErrNotHeld},
			{9 * minSegmentSize, 9*minSegmentSize + 1, device.ErrNotHeld},
		} {
			if _, err := readAll(t, d, tc.from, tc.to); !errors.Is(err, tc.err) {
				t.Errorf("reading from %d to %d: %v, want %v", tc.from, tc.to, err, tc.err)
			}
		}
		if err := os.Truncate(d.path(segmentName(1)), sumUnit+512); err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(t, d, minSegmentSize+sumUnit+512, minSegmentSize+sumUnit+520); !errors.Is(err, device.ErrCorrupt) {
			t.Errorf("reading past the end of a file that was cut: %v, want ErrCorrupt", err)
		}
	}
}

// TestRecycleUnderLoad reads a log at random addresses while it is written and truncated. A
// read returns the right bytes or ErrNotHeld.
func TestRecycleUnderLoad(t *testing.T) { overEngines(t, testRecycleUnderLoad) }

func testRecycleUnderLoad(t *testing.T) {
	const segments, depth = 40, 16
	d := started(t, Options{SegmentSize: minSegmentSize, Verify: VerifyBlocks, Recycle: 2})
	reader, err := d.NewQueue(depth)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 5))
	var bufs [depth][24]byte
	var at [depth]int64
	page := device.AlignedBuffer(minSegmentSize, d.Alignment())
	for n := range int64(segments) {
		for i := range page { // every byte identifies its segment
			page[i] = byte(n + 1)
		}
		for i := range at {
			at[i] = r.Int64N(n*minSegmentSize + 1)
			if err := reader.Read(bufs[i][:], at[i], uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := reader.Submit(); err != nil {
			t.Fatal(err)
		}
		if err := d.Truncate(max(n-2, 0) * minSegmentSize); err != nil {
			t.Fatal(err)
		}
		if err := writeBlocks(t, d, page, n*minSegmentSize); err != nil {
			t.Fatal(err)
		}
		for tag, c := range collect(t, reader, depth) {
			if c.Err != nil {
				if !errors.Is(c.Err, device.ErrNotHeld) {
					t.Fatal(c.Err)
				}
				continue
			}
			for i, b := range bufs[tag] {
				if want := byte((at[tag]+int64(i))/minSegmentSize + 1); b != want {
					t.Fatalf("at %d: a byte of segment %d", at[tag]+int64(i), b-1)
				}
			}
		}
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
}
