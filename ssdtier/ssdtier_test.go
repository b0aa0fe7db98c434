package ssdtier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	testrun.Main(m)
}

func mustOpen(t testing.TB, dir string, opts Options) *Device {
	t.Helper()
	d, err := OpenWith(dir, ofEngine(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformance(t *testing.T) { overEngines(t, testConformance) }

func testConformance(t *testing.T) {
	for name, opts := range map[string]Options{
		"direct":     {SegmentSize: minSegmentSize},
		"buffered":   {SegmentSize: minSegmentSize, Buffered: true},
		"default":    {},
		"1 worker":   {Workers: 1},
		"no reserve": {SegmentSize: minSegmentSize, Preallocate: -1},
		"sectors":    {SegmentSize: minSegmentSize, Verify: VerifyBlocks},
	} {
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) device.Device {
				return mustOpen(t, t.TempDir(), opts)
			}, devicetest.Reopen(func(t *testing.T, old device.Device) device.Device {
				return mustOpen(t, old.(*Device).Dir(), opts)
			}))
		})
	}
}

// TestTieredConformance: a small memory tier with faults, over the disk.
func TestTieredConformance(t *testing.T) { overEngines(t, testTieredConformance) }

func testTieredConformance(t *testing.T) {
	open := func(t *testing.T, dir string) device.Device {
		memory := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 256 << 10})
		faulty := device.NewFaulty(memory, device.FaultyOptions{ReadError: 0.1, WriteError: 0.1, Delay: 0.1})
		ssd := mustOpen(t, dir, Options{SegmentSize: minSegmentSize})
		return device.NewTieredWith(
			device.TieredOptions{RetryAfter: 1, Logger: slog.New(slog.DiscardHandler)}, faulty, ssd)
	}
	var dir string
	devicetest.Run(t, func(t *testing.T) device.Device {
		dir = t.TempDir()
		return open(t, dir)
	}, devicetest.Reopen(func(t *testing.T, _ device.Device) device.Device { return open(t, dir) }))
}

// fill writes n bytes of known content from address 0 on.
func fill(t *testing.T, d *Device, n int) []byte {
	t.Helper()
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // never fails
	p := devicetest.NewPump(t, d, 2)
	defer p.Close()
	src := device.AlignedBuffer(n, d.Alignment())
	copy(src, content)
	p.Write(src, 0, nil)
	return content
}

func started(t *testing.T, opts Options) *Device {
	t.Helper()
	d := mustOpen(t, t.TempDir(), opts)
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLock(t *testing.T) {
	d := started(t, Options{})
	if _, err := Open(d.Dir()); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), d.Dir()) {
		t.Errorf("opening an open directory: %v, want ErrLocked naming it", err)
	}
	if err := os.Remove(filepath.Join(d.Dir(), lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(d.Dir()); !errors.Is(err, ErrLocked) {
		t.Errorf("opening an open directory whose file LOCK was removed: %v, want ErrLocked", err)
	}
	if _, err := NewReader(d.Dir()); !errors.Is(err, ErrLocked) {
		t.Errorf("reading it: %v, want ErrLocked", err)
	}
	if in, err := Inspect(d.Dir()); err != nil || !in.InUse {
		t.Errorf("inspecting it: %v, %+v", err, in)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, d.Dir(), Options{})
}

func TestBadDirectories(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/nothing"} {
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), filepath.Dir(dir)) {
			t.Errorf("Open(%q): %v, want an error that names it", dir, err)
		}
	}
	readOnly := t.TempDir()
	if err := os.Chmod(readOnly, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 { // root can write everywhere
		if _, err := Open(readOnly); err == nil || !strings.Contains(err.Error(), readOnly+" is not writable") {
			t.Errorf("Open of a read-only directory: %v", err)
		}
	}
}

func sealed(text string) string { return string(seal([]byte(text))) }

func TestFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		file, content string
		opts          Options
		ok            bool
	}{
		"same size":      {formatName, "redykv ssdtier 1 segment 65536\n", Options{SegmentSize: 65536}, true},
		"size unstated":  {formatName, "redykv ssdtier 1 segment 65536\n", Options{}, true},
		"another size":   {formatName, "redykv ssdtier 1 segment 65536\n", Options{SegmentSize: 131072}, false},
		"version 2":      {formatName, sealed("redykv ssdtier 2 segment 65536\n"), Options{}, true},
		"sealed":         {formatName, sealed("redykv ssdtier 3 segment 65536\n"), Options{}, true},
		"not sealed":     {formatName, "redykv ssdtier 3 segment 65536\n", Options{}, false},
		"altered":        {formatName, strings.Replace(sealed("redykv ssdtier 3 segment 65536\n"), "65536", "131072", 1), Options{}, false},
		"later version":  {formatName, "redykv ssdtier 4 segment 65536\n", Options{}, false},
		"later, sealed":  {formatName, sealed("redykv ssdtier 4 segment 65536\n"), Options{}, false},
		"version 0":      {formatName, sealed("redykv ssdtier 0 segment 65536\n"), Options{}, false},
		"absurd size":    {formatName, sealed("redykv ssdtier 3 segment 65537\n"), Options{}, false},
		"rubbish":        {formatName, "\x00\x01", Options{}, false},
		"empty":          {formatName, "", Options{}, false},
		"begin":          {beginName, sealed("begin 00000000000000000017\n"), Options{}, true},
		"altered begin":  {beginName, strings.Replace(sealed("begin 00000000000000000017\n"), "17", "18", 1), Options{}, false},
		"unsealed begin": {beginName, "begin 17\n", Options{}, false},
		"begin below 0":  {beginName, sealed("begin -0000000000000000017\n"), Options{}, false},
		"more begin":     {beginName, sealed("begin 00000000000000000017\nbegin 00000000000000000018\n"), Options{}, false},
		"rubbish begin":  {beginName, "x", Options{}, false},
		"huge begin":     {beginName, sealed("begin 99999999999999999999\n"), Options{}, false},
		"a foreign file": {"000.seg", "x", Options{}, false},
		"a foreign temp": {"thesis.tmp", "x", Options{}, false},
		"a leftover":     {"BEGIN.tmp", "x", Options{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.file == beginName { // Open also expects the format file
				format := sealed("redykv ssdtier 3 segment 65536\n")
				if err := os.WriteFile(filepath.Join(dir, formatName), []byte(format), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, tc.file), []byte(tc.content), 0o666); err != nil {
				t.Fatal(err)
			}
			d, err := OpenWith(dir, tc.opts)
			if tc.ok {
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want ErrFormat and the name of the file", err)
			}
			if _, err := os.Stat(filepath.Join(dir, lockName)); strings.HasPrefix(name, "a foreign") && err == nil {
				t.Error("it has left a lock in a directory that is not its own")
			}
		})
	}
}

func TestBadOptions(t *testing.T) {
	for _, opts := range []Options{
		{SegmentSize: -1}, {SegmentSize: 1}, {SegmentSize: 100_000}, {SegmentSize: 1 << 41},
		{Workers: -1}, {Workers: 1 << 20}, {Engine: "magic"}, {Verify: "hope"},
	} {
		if _, err := OpenWith(t.TempDir(), opts); err == nil {
			t.Errorf("OpenWith(%+v) succeeded", opts)
		}
	}
}

func segmentFiles(t *testing.T, d *Device) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.Dir(), "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestTruncateGivesSpaceBack(t *testing.T) { overEngines(t, testTruncateGivesSpaceBack) }

func testTruncateGivesSpaceBack(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 4*minSegmentSize)
	if n := len(segmentFiles(t, d)); n != 4 {
		t.Fatalf("%d segments, want 4", n)
	}
	begin := 2*minSegmentSize + 5
	if err := d.Truncate(int64(begin)); err != nil {
		t.Fatal(err)
	}
	if n := len(segmentFiles(t, d)); n != 2 {
		t.Errorf("%d segments after truncation, want 2", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	// A crash between storing Begin and removing files leaves old segments.
	stray := filepath.Join(d.Dir(), segmentName(1))
	if err := os.WriteFile(stray, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a segment below Begin is there after opening: %v", err)
	}
	tail := 3 * minSegmentSize
	if err := d.Start(int64(tail)); err != nil {
		t.Fatal(err)
	}
	if n := len(segmentFiles(t, d)); n != 1 {
		t.Errorf("%d segments below the tail, want 1", n)
	}
	p := devicetest.NewPump(t, d, 4)
	defer p.Close()
	p.Read(make([]byte, tail-begin), int64(begin), content[begin:tail])
	p.ReadFails(make([]byte, 1), int64(tail), device.ErrNotHeld)
}

// TestAlignment reads across every boundary at every offset around it, with aligned and
// unaligned addresses, lengths and buffers.
func TestAlignment(t *testing.T) { overEngines(t, testAlignment) }

func testAlignment(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 2*minSegmentSize)
	block := d.Alignment()
	p := devicetest.NewPump(t, d, 32)
	defer p.Close()
	for _, border := range []int{block, 4096, minSegmentSize} {
		for _, before := range []int{0, 1, block - 1, block, block + 1} {
			for _, n := range []int{1, block - 1, block, block + 1, 2 * block, 4096, 5000, 40_000} {
				addr := max(border-before, 0)
				if n < 1 {
					continue
				}
				for _, skew := range []int{0, 1} {
					dst := device.AlignedBuffer(n+skew, max(block, 512))[skew:]
					p.Read(dst, int64(addr), content[addr:addr+n])
				}
			}
		}
	}
}

func TestMisalignedWrites(t *testing.T) { overEngines(t, testMisalignedWrites) }

func testMisalignedWrites(t *testing.T) {
	d := started(t, Options{})
	if !d.Direct() {
		t.Skip("no direct I/O here: every write is aligned")
	}
	block := d.Alignment()
	buf := device.AlignedBuffer(2*block, block)
	for _, tc := range []struct {
		src  []byte
		addr int64
	}{{buf[:block], 1}, {buf[:block-1], 0}, {buf[1 : block+1], 0}} {
		if c := devicetest.Write(t, d, tc.src, tc.addr); c.Err == nil {
			t.Errorf("write of %d bytes at %d: %+v, want an error", len(tc.src), tc.addr, c)
		}
	}
}

func TestMetaNames(t *testing.T) {
	d := started(t, Options{})
	for _, name := range []string{"", "../x", "a/b", "a\x00", "x.tmp", strings.Repeat("x", 129)} {
		if err := d.WriteMeta(name, nil); err == nil {
			t.Errorf("WriteMeta(%q) succeeded", name)
		}
		if _, err := d.ReadMeta(name); err == nil || errors.Is(err, device.ErrNoMeta) {
			t.Errorf("ReadMeta(%q): %v, want an error about the name", name, err)
		}
	}
	data := bytes.Repeat([]byte("x"), 100_000)
	if err := d.WriteMeta("a-Z_0.9", data); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadMeta("a-Z_0.9"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestBufferedSaysSo(t *testing.T) {
	d := started(t, Options{Buffered: true})
	if d.Direct() || d.Alignment() != sumUnit {
		t.Errorf("direct %v, alignment %d", d.Direct(), d.Alignment())
	}
}

func TestNoAllocationPerRead(t *testing.T) { overEngines(t, testNoAllocationPerRead) }

func testNoAllocationPerRead(t *testing.T) {
	d := started(t, Options{Workers: 2})
	fill(t, d, 1<<20)
	q, err := d.NewQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	var dst [20_000]byte
	var done [8]device.Completion
	read := func() {
		for i := range 8 {
			if err := q.Read(dst[:100+i%2*15_000], int64(i*1000), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Submit(); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 8; n += q.Poll(done[:]) {
			if err := q.Wait(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 50 { // until buffers, workers and runtime structures are allocated
		read()
	}
	if allocs := testrun.AllocsPerRun(100, read); allocs >= 1 {
		t.Errorf("%v allocations for 8 reads", allocs)
	}
}

func TestSegmentNames(t *testing.T) {
	for _, n := range []int64{0, 1, 1 << 47 >> 16, 999_999_999_999, 1 << 50} {
		if got, ok := parseSegmentName(segmentName(n)); !ok || got != n {
			t.Errorf("%s parses as %d, %v", segmentName(n), got, ok)
		}
	}
	for _, name := range []string{"", ".seg", "1.seg", "00000000000x.seg", "-00000000001.seg", "+00000000001.seg", "000000000001.SEG"} {
		if n, ok := parseSegmentName(name); ok {
			t.Errorf("%q parses as %d", name, n)
		}
	}
}

func TestQueueOutlivesDevice(t *testing.T) { overEngines(t, testQueueOutlivesDevice) }

func testQueueOutlivesDevice(t *testing.T) {
	d := started(t, Options{})
	content := fill(t, d, 4096)
	q, err := d.NewQueue(4)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Read(content, 0, 1), q.Write(content, 0, 2), q.Submit()); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 2; n++ {
		var done [1]device.Completion
		if err := q.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		if q.Poll(done[:]) != 1 || done[0].Err == nil {
			t.Errorf("completion on a closed device: %+v", done[0])
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.NewQueue(1); !errors.Is(err, device.ErrClosed) {
		t.Errorf("NewQueue on a closed device: %v", err)
	}
}
