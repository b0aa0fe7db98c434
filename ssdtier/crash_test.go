package ssdtier

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// crashed is a log that is written as hlog writes one, with the states of it that may be on
// disk.
type crashed struct {
	t       *testing.T
	d       *Device
	content []byte            // of the log, up to its end
	written int               // end of what was written to the device
	tail    int               // end of the synced part
	older   int               // the previous tail, which may be the last one that is known
	disk    map[string][]byte // contents of the files at the last Sync

	// Of a log with commits:
	generation uint64       // of the journal when disk was noted
	memory     *otherMemory // of the journal, or nil
	home       int          // tail of the last commit that the directory has
}

func (c *crashed) files() map[string][]byte {
	c.t.Helper()
	return filesOf(c.t, c.d.Dir())
}

// filesOf reads the files of a directory. While it is written to, that is what a killed process may leave:
// checksums are not newer than their blocks, since .sum is read before .seg.
func filesOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(paths)
	files := make(map[string][]byte)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		switch {
		case err == nil:
			files[filepath.Base(path)] = data
		case !errors.Is(err, fs.ErrNotExist) || filepath.Ext(path) != tempSuffix: // otherwise the file was renamed meanwhile
			t.Fatal(err)
		}
	}
	return files
}

// write appends n bytes: it rewrites the block in which the log ended, with new bytes after
// it.
func (c *crashed) write(r *rand.Rand, n int) {
	c.t.Helper()
	c.extend(r, n)
	c.flush()
}

// extend appends n bytes that are not on the device.
func (c *crashed) extend(r *rand.Rand, n int) {
	for range n {
		c.content = append(c.content, byte(r.Uint32()))
	}
}

// unwritten are the blocks from the one on in which the device's part ends.
func (c *crashed) unwritten() (src []byte, addr int64) {
	align := c.d.Alignment()
	from := c.written &^ (align - 1)
	src = device.AlignedBuffer(int(alignUp(int64(len(c.content)-from), int64(align))), align)
	copy(src, c.content[from:])
	return src, int64(from)
}

// flush writes what is not on the device.
func (c *crashed) flush() {
	c.t.Helper()
	src, addr := c.unwritten()
	p := devicetest.NewPump(c.t, c.d, 1)
	p.Write(src, addr, nil)
	p.Close()
	c.written = len(c.content)
}

func (c *crashed) sync() {
	c.t.Helper()
	if err := c.d.Sync(); err != nil {
		c.t.Fatal(err)
	}
	c.older = c.tail
	c.tail, c.disk = len(c.content), c.files()
}

// crash makes a directory in which each sector has either its state at the last Sync or a
// later one. It opens the directory at the synced tail or at the one before, because the newer
// tail may not have been stored.
func (c *crashed) crash(r *rand.Rand, opts Options) *Device {
	c.t.Helper()
	d := mustOpen(c.t, c.copyTorn(r), opts)
	if r.IntN(3) == 0 {
		c.tail = c.older
	}
	c.older = c.tail
	if err := d.Start(int64(c.tail)); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// copyTorn makes that directory.
func (c *crashed) copyTorn(r *rand.Rand) string {
	c.t.Helper()
	const sector = 512
	dir := c.t.TempDir()
	now := c.files()
	for name, data := range now {
		old, ok := c.disk[name]
		if !ok && r.IntN(2) == 0 {
			continue
		}
		if n := len(data); n > len(old) && r.IntN(2) == 0 {
			data = data[:len(old)+r.IntN(n-len(old)+1)]
		}
		data = bytes.Clone(data)
		for at := 0; at < len(data); at += sector {
			if r.IntN(2) == 0 && at < len(old) {
				copy(data[at:min(at+sector, len(data))], old[at:])
			} else if r.IntN(2) == 0 && at >= len(old) {
				clear(data[at:min(at+sector, len(data))])
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			c.t.Fatal(err)
		}
	}
	return dir
}

// TestCrash crashes a log at random moments. All synced bytes must be readable afterwards, and
// damage to them must be detected.
func TestCrash(t *testing.T) { overEngines(t, testCrash) }

func testCrash(t *testing.T) {
	for seed := range uint64(testrun.Raced(30, 8)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			opts := Options{SegmentSize: minSegmentSize, Buffered: seed%2 == 0, Workers: 2}
			c := &crashed{t: t, d: started(t, opts)}
			c.sync()
			for range 4 {
				for range 1 + r.IntN(6) {
					n := 1 + r.IntN(300)
					if r.IntN(2) == 0 {
						n = 1 + r.IntN(30_000)
					}
					c.write(r, n)
					if r.IntN(2) == 0 {
						c.sync()
					}
				}
				old := c.d
				c.d = c.crash(r, opts)
				if err := old.Close(); err != nil {
					t.Fatal(err)
				}
				c.content, c.written = c.content[:c.tail], c.tail
				testrun.Bytes(readAll(t, c.d, 0, int64(c.tail))).Want(t, c.content, "after a crash with %d bytes synced", c.tail)
				c.checkDamage(r)
				c.checkTail(r)
				c.sync()
			}
		})
	}
}

// checkDamage changes a byte below the log's last block, and restores it.
func (c *crashed) checkDamage(r *rand.Rand) {
	c.t.Helper()
	last := c.tail &^ (sumUnit - 1)
	if last == 0 {
		return
	}
	at := int64(r.IntN(last))
	path := c.d.path(segmentName(at / minSegmentSize))
	alter(c.t, path, at%minSegmentSize)
	if _, err := readAll(c.t, c.d, at, at+1); !errors.Is(err, device.ErrCorrupt) {
		c.t.Fatalf("reading an altered byte at %d: %v, want ErrCorrupt", at, err)
	}
	alter(c.t, path, at%minSegmentSize)
}

// checkTail changes a synced byte in the log's last block, which only Start can detect, and
// restores it.
func (c *crashed) checkTail(r *rand.Rand) {
	c.t.Helper()
	from := c.tail &^ (sumUnit - 1)
	if from == c.tail {
		return
	}
	at := int64(from + r.IntN(c.tail-from))
	path := c.d.path(segmentName(at / minSegmentSize))
	alter(c.t, path, at%minSegmentSize)
	if err := c.d.Start(int64(c.tail)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := readAll(c.t, c.d, at, at+1); !errors.Is(err, device.ErrCorrupt) {
		c.t.Fatalf("reading an altered byte of the last block at %d, with the tail at %d: %v, want ErrCorrupt", at, c.tail, err)
	}
	alter(c.t, path, at%minSegmentSize)
	if err := c.d.Start(int64(c.tail)); err != nil {
		c.t.Fatal(err)
	}
}

// TestCopiesWhileWriting copies the files of a log while it is written and synced, which is
// what a killed process leaves. A copy must contain everything that a Sync covered.
func TestCopiesWhileWriting(t *testing.T) { overEngines(t, testCopiesWhileWriting) }

func testCopiesWhileWriting(t *testing.T) {
	opts := Options{SegmentSize: minSegmentSize, Workers: 4}
	c := &crashed{t: t, d: started(t, opts)}
	content := make([]byte, 8*minSegmentSize)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(content) // never fails
	var written, synced atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { // as hlog does: the last block again, with new bytes
		defer written.Store(-1)
		r := rand.New(rand.NewPCG(3, 3))
		p := devicetest.NewPump(t, c.d, 1)
		defer p.Close()
		align := c.d.Alignment()
		for end := 0; end < len(content); {
			from := end &^ (align - 1)
			end = min(end+1+r.IntN(9000), len(content))
			src := device.AlignedBuffer(int(alignUp(int64(end-from), int64(align))), align)
			copy(src, content[from:end])
			p.Write(src, int64(from), nil)
			p.Drain()
			written.Store(int64(end))
		}
	})
	wg.Go(func() {
		for {
			tail := written.Load()
			if tail < 0 {
				return
			}
			if err := c.d.Sync(); err != nil {
				t.Error(err)
				return
			}
			synced.Store(tail)
		}
	})
	for copies := 0; copies < 5 || written.Load() >= 0; copies++ {
		tail := synced.Load()
		dir := t.TempDir()
		for name, data := range c.files() {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		d, err := OpenWith(dir, ofEngine(opts))
		if err == nil {
			err = d.Start(tail)
		}
		if err != nil {
			t.Fatal(err)
		}
		testrun.Bytes(readAll(t, d, 0, tail)).Want(t, content[:tail], "with %d bytes synced", tail)
		if err := errors.Join(d.Close(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// TestKilledBeforeTheFirstSegment: a process that ended between the sums of a segment and the segment
// stored nothing there, so the log may end in it.
func TestKilledBeforeTheFirstSegment(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	if err := errors.Join(d.Commit("m", []byte("empty")), d.makeSums(0)); err != nil {
		t.Fatal(err)
	}
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(d.Dir())); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, killed, Options{})
	if err := again.Start(64); err != nil {
		t.Error(err)
	}
	if data, err := again.ReadMeta("m"); err != nil || string(data) != "empty" {
		t.Errorf("%q, %v", data, err)
	}
}
