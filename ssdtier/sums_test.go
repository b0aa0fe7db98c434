package ssdtier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
)

// readAll reads a part of the log with one operation.
func readAll(t *testing.T, d *Device, from, to int64) ([]byte, error) {
	t.Helper()
	dst := make([]byte, to-from)
	c := readOne(t, d, dst, from)
	return dst, c.Err
}

// writeBlocks writes content at an address and returns the outcome.
func writeBlocks(t *testing.T, d *Device, content []byte, addr int64) error {
	t.Helper()
	q, err := d.NewQueue(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	src := device.AlignedBuffer(len(content), d.Alignment())
	copy(src, content)
	if err := errors.Join(q.Write(src, addr, 1), q.Submit(), q.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	var done [1]device.Completion
	if q.Poll(done[:]) != 1 {
		t.Fatal("no completion")
	}
	return done[0].Err
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

// TestAlteredBytes: a read of a block of which one bit is another fails, and no
// other read does.
func TestAlteredBytes(t *testing.T) {
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
					} else if err != nil || !bytes.Equal(got, content[from:to]) {
						t.Fatalf("reading %d to %d: %v, or wrong bytes", from, to, err)
					}
				}
				// Written again, it is well again.
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

// TestMisplacedBlock: a block that is whole, but another one's.
func TestMisplacedBlock(t *testing.T) {
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

// TestReadsDuringRewrites: a log writes its last block again, with more in it,
// while others read what it held before.
func TestReadsDuringRewrites(t *testing.T) {
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

// crashed is a log that is written as hlog writes one, and what a disk may have
// of it.
type crashed struct {
	t       *testing.T
	d       *Device
	content []byte            // of the log, up to its end
	tail    int               // synced
	disk    map[string][]byte // the files as the last Sync left them
}

func (c *crashed) files() map[string][]byte {
	c.t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.d.Dir(), "*"))
	if err != nil {
		c.t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		files[filepath.Base(path)] = data
	}
	return files
}

// write appends n bytes: the block in which the log ended, again, and what
// follows.
func (c *crashed) write(r *rand.Rand, n int) {
	c.t.Helper()
	align := c.d.Alignment()
	from := len(c.content) &^ (align - 1)
	for range n {
		c.content = append(c.content, byte(r.Uint32()))
	}
	src := device.AlignedBuffer(int(alignUp(int64(len(c.content)-from), int64(align))), align)
	copy(src, c.content[from:])
	p := devicetest.NewPump(c.t, c.d, 1)
	p.Write(src, int64(from), nil)
	p.Close()
}

func (c *crashed) sync() {
	c.t.Helper()
	if err := c.d.Sync(); err != nil {
		c.t.Fatal(err)
	}
	c.tail, c.disk = len(c.content), c.files()
}

// crash makes a directory in which each sector is as at the last Sync or as it
// was to be, and opens it.
func (c *crashed) crash(r *rand.Rand, opts Options) *Device {
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
	d := mustOpen(c.t, dir, opts)
	if err := d.Start(int64(c.tail)); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// TestCrash plays a log with crashes at any moment: what was synced is there
// afterwards, whatever became of the rest, and damage to it is still found.
func TestCrash(t *testing.T) {
	for seed := range uint64(30) {
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
				c.content = c.content[:c.tail]
				if got, err := readAll(t, c.d, 0, int64(c.tail)); err != nil || !bytes.Equal(got, c.content) {
					t.Fatalf("after a crash with %d bytes synced: %v, or other bytes", c.tail, err)
				}
				c.checkDamage(r)
				c.sync()
			}
		})
	}
}

// checkDamage alters a byte below the block that the log ends in, and puts it
// back.
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

// TestCloseWithoutSync: an orderly end loses nothing, as long as the machine
// stands.
func TestCloseWithoutSync(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 2*minSegmentSize)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(2 * minSegmentSize); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, d, 0, 2*minSegmentSize); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%v, or wrong bytes", err)
	}
}

// version1 makes a directory as the version before checksums left it.
func version1(t *testing.T, content []byte, begin int) string {
	t.Helper()
	dir := t.TempDir()
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

// TestVersion1: a directory without checksums opens, its blocks are read as they
// are, and what is written from then on has checksums.
func TestVersion1(t *testing.T) {
	for _, tail := range []int{3 * minSegmentSize, 2*minSegmentSize + 5000, 2*minSegmentSize + 512} {
		for _, interrupted := range []bool{false, true} {
			t.Run(fmt.Sprintf("tail %d, interrupted %v", tail, interrupted), func(t *testing.T) {
				content := make([]byte, tail)
				_, _ = rand.NewChaCha8([32]byte{2}).Read(content) // never fails
				const begin = minSegmentSize + 77
				dir := version1(t, content, begin)
				if interrupted { // all but the last step was done before
					if err := mustOpen(t, dir, Options{}).Close(); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, formatName), []byte("redykv ssdtier 1 segment 65536\n"), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 { // as a version 1 and as what it became
					d := mustOpen(t, dir, Options{})
					if err := d.Start(int64(tail)); err != nil {
						t.Fatal(err)
					}
					if got, err := readAll(t, d, begin, int64(tail)); err != nil || !bytes.Equal(got, content[begin:]) {
						t.Fatalf("%v, or wrong bytes", err)
					}
					if got, err := d.ReadMeta("store"); err != nil || string(got) != `{"tail":7}` {
						t.Fatalf("metadata %q, %v", got, err)
					}
					if err := errors.Join(d.Sync(), d.Close()); err != nil {
						t.Fatal(err)
					}
				}
				if data, err := os.ReadFile(filepath.Join(dir, formatName)); err != nil || string(data) != sealed("redykv ssdtier 2 segment 65536\n") {
					t.Fatalf("format %q, %v", data, err)
				}

				d := mustOpen(t, dir, Options{})
				if err := d.Start(int64(tail)); err != nil {
					t.Fatal(err)
				}
				c := &crashed{t: t, d: d, content: content}
				c.write(rand.New(rand.NewPCG(1, 1)), 10_000)
				c.sync()
				alter(t, d.path(segmentName(1)), 100) // before the checksums: nobody knows
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

// BenchmarkSequentialWrite writes a log in 1 MiB pages, eight at a time.
func BenchmarkSequentialWrite(b *testing.B) {
	const page, depth, pages = 1 << 20, 8, 256
	d := mustOpen(b, b.TempDir(), Options{})
	if err := d.Start(0); err != nil {
		b.Fatal(err)
	}
	q, err := d.NewQueue(depth)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	src := device.AlignedBuffer(page, d.Alignment())
	_, _ = rand.NewChaCha8([32]byte{}).Read(src) // never fails
	b.SetBytes(page)
	under := 0
	reap := func(n int) {
		for target := under - n; under > target; {
			if err := q.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
			var done [depth]device.Completion
			for _, c := range done[:q.Poll(done[:])] {
				if under--; c.Err != nil {
					b.Fatal(c.Err)
				}
			}
		}
	}
	for i := range b.N {
		if err := q.Write(src, int64(i%pages)*page, 0); err != nil {
			b.Fatal(err)
		}
		if under++; under == depth {
			reap(1)
		}
	}
	reap(under)
}

// BenchmarkSync writes a page and syncs, as a commit does.
func BenchmarkSync(b *testing.B) {
	for _, page := range []int{4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
			d := mustOpen(b, b.TempDir(), Options{})
			if err := d.Start(0); err != nil {
				b.Fatal(err)
			}
			q, err := d.NewQueue(1)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = q.Close() }()
			src := device.AlignedBuffer(page, d.Alignment())
			for i := range b.N {
				err := errors.Join(q.Write(src, int64(i*page), 0), q.Submit(), q.Wait(context.Background()))
				var done [1]device.Completion
				q.Poll(done[:])
				if err := errors.Join(err, done[0].Err, d.Sync()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
