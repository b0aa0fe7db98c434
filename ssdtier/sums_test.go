package ssdtier

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// readAll reads a part of the log with one operation.
func readAll(t *testing.T, d *Device, from, to int64) ([]byte, error) {
	t.Helper()
	dst := make([]byte, to-from)
	return dst, devicetest.Read(t, d, dst, from).Err
}

// writeBlocks writes content at an address and returns the error.
func writeBlocks(t *testing.T, d *Device, content []byte, addr int64) error {
	t.Helper()
	src := device.AlignedBuffer(len(content), d.Alignment())
	copy(src, content)
	return devicetest.Write(t, d, src, addr).Err
}

// alter changes one byte of a file.
func alter(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAlteredBytes: a read fails if a bit of its block has changed; all other reads succeed.
func TestAlteredBytes(t *testing.T) { overEngines(t, testAlteredBytes) }

func testAlteredBytes(t *testing.T) {
	for name, opts := range map[string]Options{
		"direct":   {SegmentSize: minSegmentSize},
		"buffered": {SegmentSize: minSegmentSize, Buffered: true},
	} {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reopened %v", name, reopen), func(t *testing.T) {
				d := started(t, opts)
				content := fill(t, d, 3*minSegmentSize)
				if err := d.Sync(); err != nil {
					t.Fatal(err)
				}
				r := rand.New(rand.NewPCG(1, 2))
				bad := int64(minSegmentSize + r.IntN(minSegmentSize))
				alter(t, d.path(segmentName(1)), bad-minSegmentSize)
				if reopen {
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					d = mustOpen(t, d.Dir(), opts)
					if err := d.Start(3 * minSegmentSize); err != nil {
						t.Fatal(err)
					}
				}
				block := bad &^ (sumUnit - 1)
				for range 500 {
					from := int64(r.IntN(len(content)))
					to := from + 1 + int64(r.IntN(min(len(content)-int(from), 3*sumUnit)))
					got, err := readAll(t, d, from, to)
					if from < block+sumUnit && to > block {
						where := fmt.Sprintf("%s: the block at offset %d", segmentName(1), block-minSegmentSize)
						if !errors.Is(err, device.ErrCorrupt) || !strings.Contains(err.Error(), where) {
							t.Fatalf("reading %d to %d: %v, want ErrCorrupt and %q", from, to, err, where)
						}
						continue
					}
					testrun.Bytes(got, err).Want(t, content[from:to], "reading %d to %d", from, to)
				}
				// Rewriting the block repairs it.
				src := device.AlignedBuffer(sumUnit, d.Alignment())
				copy(src, content[block:])
				p := devicetest.NewPump(t, d, 2)
				defer p.Close()
				p.Write(src, block, nil)
				p.Drain()
				p.Read(make([]byte, len(content)), 0, content)
			})
		}
	}
}

// TestMisplacedBlock: an intact block at the wrong address is detected.
func TestMisplacedBlock(t *testing.T) { overEngines(t, testMisplacedBlock) }

func testMisplacedBlock(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, minSegmentSize)
	f, err := os.OpenFile(d.path(segmentName(0)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(content[:sumUnit], sumUnit)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, d, sumUnit, sumUnit+1); !errors.Is(err, device.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}

// TestReadsDuringRewrites: a log rewrites its last block with more bytes while others read its
// earlier bytes.
func TestReadsDuringRewrites(t *testing.T) { overEngines(t, testReadsDuringRewrites) }

func testReadsDuringRewrites(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		d := started(t, Options{Buffered: buffered})
		content := make([]byte, sumUnit)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
		const known = 100
		write := func(p *devicetest.Pump, n int) {
			src := device.AlignedBuffer(sumUnit, d.Alignment())
			copy(src, content[:n])
			p.Write(src, 0, nil)
			p.Drain()
		}
		p := devicetest.NewPump(t, d, 1)
		write(p, known)
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r := devicetest.NewPump(t, d, 4)
			defer r.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range 4 {
					r.Read(make([]byte, known), 0, content[:known])
				}
				r.Drain()
			}
		}()
		for n := known; n < sumUnit; n += 20 {
			write(p, n)
		}
		close(stop)
		<-ended
		p.Close()
	}
}

// TestCloseWithoutSync: Close without Sync loses nothing unless the machine crashes.
func TestCloseWithoutSync(t *testing.T) { overEngines(t, testCloseWithoutSync) }

func testCloseWithoutSync(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 2*minSegmentSize)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(2 * minSegmentSize); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, d, 0, 2*minSegmentSize)).Want(t, content, "read")
}

// version1 makes a directory of format version 1, without checksums.
func version1(t *testing.T, content []byte, begin int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "old[1]") // which is not taken for a pattern
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(formatName, []byte("redykv ssdtier 1 segment 65536\n"))
	write(beginName, fmt.Appendf(nil, "begin %d\n", begin))
	write("meta.store", []byte(`{"tail":7}`))
	write(lockName, nil)
	for n := begin / minSegmentSize; n*minSegmentSize < len(content); n++ {
		write(segmentName(int64(n)), content[n*minSegmentSize:min((n+1)*minSegmentSize, len(content))])
	}
	return dir
}

// TestVersion1: a directory without checksums can be opened. Its old blocks are read
// unverified; new writes get checksums.
func TestVersion1(t *testing.T) { overEngines(t, testVersion1) }

func testVersion1(t *testing.T) {
	for _, tail := range []int{3 * minSegmentSize, 2*minSegmentSize + 5000, 2*minSegmentSize + 512} {
		for _, interrupted := range []bool{false, true} {
			t.Run(fmt.Sprintf("tail %d, interrupted %v", tail, interrupted), func(t *testing.T) {
				content := make([]byte, tail)
				_, _ = rand.NewChaCha8([32]byte{2}).Read(content) // never fails
				const begin = minSegmentSize + 77
				dir := version1(t, content, begin)
				if interrupted { // the upgrade was interrupted before its last step
					if err := mustOpen(t, dir, Options{}).Close(); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, formatName), []byte("redykv ssdtier 1 segment 65536\n"), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 { // first as version 1, then as the upgraded directory
					d := mustOpen(t, dir, Options{})
					if err := d.Start(int64(tail)); err != nil {
						t.Fatal(err)
					}
					testrun.Bytes(readAll(t, d, begin, int64(tail))).Want(t, content[begin:], "read")
					if got, err := d.ReadMeta("store"); err != nil || string(got) != `{"tail":7}` {
						t.Fatalf("metadata %q, %v", got, err)
					}
					if err := errors.Join(d.Sync(), d.Close()); err != nil {
						t.Fatal(err)
					}
				}
				if data, err := os.ReadFile(filepath.Join(dir, formatName)); err != nil || string(data) != sealed("redykv ssdtier 3 segment 65536\n") {
					t.Fatalf("format %q, %v", data, err)
				}

				d := mustOpen(t, dir, Options{})
				if err := d.Start(int64(tail)); err != nil {
					t.Fatal(err)
				}
				c := &crashed{t: t, d: d, content: content, written: tail}
				c.write(rand.New(rand.NewPCG(1, 1)), 10_000)
				c.sync()
				alter(t, d.path(segmentName(1)), 100) // before the upgrade, so it cannot be detected
				if _, err := readAll(t, d, begin, minSegmentSize+sumUnit); err != nil {
					t.Error(err)
				}
				alter(t, d.path(segmentName(int64(tail/minSegmentSize))), int64(tail%minSegmentSize))
				if _, err := readAll(t, d, int64(tail), int64(tail+1)); !errors.Is(err, device.ErrCorrupt) {
					t.Errorf("reading an altered byte after the upgrade: %v, want ErrCorrupt", err)
				}
			})
		}
	}
}
