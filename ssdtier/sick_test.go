package ssdtier

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// sickDirectory returns a closed directory with a log of three and a half segments.
func sickDirectory(t *testing.T) (d *Device, content []byte) {
	t.Helper()
	d = started(t, Options{SegmentSize: minSegmentSize})
	content = fill(t, d, 3*minSegmentSize+minSegmentSize/2)
	putObject(t, d, "o", content, len(content))
	if err := errors.Join(d.Truncate(100), d.WriteMeta("m", []byte("meta")), d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	return d, content
}

// TestSickDirectories: after any damage, reads return what was written or an error that names
// the file.
func TestSickDirectories(t *testing.T) { overEngines(t, testSickDirectories) }

func testSickDirectories(t *testing.T) {
	remove := os.Remove
	zero := func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, make([]byte, info.Size()), 0o666)
	}
	garbage := func(path string) error {
		return os.WriteFile(path, bytes.Repeat([]byte("garbage!"), 2000), 0o666)
	}
	empty := func(path string) error { return os.WriteFile(path, nil, 0o666) }
	folder := func(path string) error { return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o777)) }
	short := func(path string) error { return os.Truncate(path, 10_000) }
	// One letter per segment: 'r' can be read, 'c' fails with ErrCorrupt, 'n' with ErrNotHeld.
	// '!' means that Open or Start fails.
	const all = "rrrr"
	for _, tc := range []struct {
		file   string
		what   string
		damage func(path string) error
		want   string
	}{
		{formatName, "removed", remove, "!"},
		{formatName, "zeroed", zero, "!"},
		{formatName, "garbage", garbage, "!"},
		{formatName, "empty", empty, "!"},
		{formatName, "a folder", folder, "!"},
		{formatName, "long", makeLong, "!"},
		{beginName, "removed", remove, all},
		{beginName, "zeroed", zero, "!"},
		{beginName, "garbage", garbage, "!"},
		{beginName, "empty", empty, "!"},
		{beginName, "a folder", folder, "!"},
		{beginName, "long", makeLong, "!"},
		{journalName, "long", makeLong, all},
		{lockName, "removed", remove, all},
		{lockName, "garbage", garbage, all},
		{lockName, "a folder", folder, "!"},
		{segmentName(1), "removed", remove, "rcrr"},
		{segmentName(1), "zeroed", zero, "rcrr"},
		{segmentName(1), "garbage", garbage, "rcrr"},
		{segmentName(1), "empty", empty, "rcrr"},
		{segmentName(1), "cut short", short, "rcrr"},
		{segmentName(1), "a folder", folder, "!"},
		{segmentName(1), "long", makeLong, all},
		{segmentName(3), "removed", remove, "!"},
		{segmentName(3), "empty", empty, "rrrc"},
		{segmentName(3), "zeroed", zero, "rrrc"},
		{segmentName(3), "long", makeLong, all},
		{sumName(1), "removed", remove, "rcrr"},
		{sumName(1), "zeroed", zero, "rcrr"},
		{sumName(1), "garbage", garbage, "rcrr"},
		{sumName(1), "empty", empty, "rcrr"},
		{sumName(1), "a folder", folder, "!"},
		{sumName(1), "long", makeLong, all},
		{sumName(3), "removed", remove, "rrrc"},
		{"000000000002.*", "removed", nil, "rrnr"},
		{metaPrefix + "m", "zeroed", zero, all},
		{metaPrefix + "m", "long", makeLong, all},
		{objectPrefix + "o", "zeroed", zero, all},
	} {
		t.Run(tc.file+" "+tc.what, func(t *testing.T) {
			d, content := sickDirectory(t)
			name := tc.file
			if tc.damage == nil {
				name = segmentName(2)
				if err := errors.Join(remove(d.path(sumName(2))), remove(d.path(name))); err != nil {
					t.Fatal(err)
				}
			} else if err := tc.damage(d.path(name)); err != nil {
				t.Fatal(err)
			}
			named := func(err error) bool { return err != nil && strings.Contains(err.Error(), name) }
			tail := int64(len(content) - 100)
			sick, err := OpenWith(d.Dir(), ofEngine(Options{}))
			if err == nil {
				defer func() { _ = sick.Close() }()
				err = sick.Start(tail)
			}
			if (tc.want == "!") != (err != nil) || err != nil && !named(err) {
				t.Fatalf("opening and starting: %v; want %s, with the name of the file", err, tc.want)
			}
			if err != nil {
				return
			}
			checkSegments(t, sick, content[:tail], tc.want, named)
			checkFile(t, "metadata", tc.file == "meta.m", named, []byte("meta"), func() ([]byte, error) {
				return sick.ReadMeta("m")
			})
			checkFile(t, "object", tc.file == "object.o", named, content, func() ([]byte, error) {
				o, err := sick.OpenObject("o")
				if err != nil {
					return nil, err
				}
				defer func() { _ = o.Close() }()
				got := make([]byte, o.Size())
				_, err = o.ReadAt(got, 0)
				return got, err
			})
		})
	}
}

// makeLong makes a file a TiB long, of which the disk has what it had.
func makeLong(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(1<<40), f.Close())
}

// TestInspectLong: Inspect does not read what no file of a store has.
func TestInspectLong(t *testing.T) {
	d, _ := sickDirectory(t)
	names := []string{beginName, journalName, segmentName(1), sumName(1), metaPrefix + "m"}
	for _, name := range names {
		if err := makeLong(d.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	r := inspect(t, d.Dir())
	wantFindings(t, "problems", r.Problems, beginName+": ", segmentName(1)+": has 1099511627776 bytes", metaPrefix+"m: ")
	if s := r.Segments[1]; s.Verified != minSegmentSize/sumUnit {
		t.Errorf("%+v", s)
	}
}

// checkSegments reads each segment, block by block.
func checkSegments(t *testing.T, d *Device, content []byte, want string, named func(error) bool) {
	t.Helper()
	for n := range want {
		reads, fails := 0, 0
		from := int64(max(n*minSegmentSize, 100))
		for from < int64(len(content)) && from < int64(n+1)*minSegmentSize {
			to := min((from+sumUnit)&^(sumUnit-1), int64(len(content)))
			got, err := readAll(t, d, from, to)
			switch {
			case err == nil && !bytes.Equal(got, content[from:to]):
				t.Fatalf(testrun.WrongMark+" segment %d: wrong bytes at %d", n, from)
			case err == nil:
				reads++
			case want[n] == 'c' && errors.Is(err, device.ErrCorrupt) && named(err),
				want[n] == 'n' && errors.Is(err, device.ErrNotHeld) && named(err):
				fails++
			default:
				t.Fatalf("segment %d: %v, want %c and the file's name", n, err, want[n])
			}
			from = to
		}
		// A truncated segment can be read up to its end.
		if want[n] == 'r' && fails > 0 || want[n] != 'r' && (fails == 0 || reads > 2) {
			t.Errorf("segment %d: %d reads went well, %d failed; want %c", n, reads, fails, want[n])
		}
	}
}

func checkFile(t *testing.T, what string, sick bool, named func(error) bool, want []byte, read func() ([]byte, error)) {
	t.Helper()
	got, err := read()
	if !sick {
		testrun.Bytes(got, err).Want(t, want, "%s", what)
	} else if !errors.Is(err, device.ErrCorrupt) || !named(err) {
		t.Errorf("%s: %v, want ErrCorrupt and the file's name", what, err)
	}
}

// exchange swaps the names of two segments, with their checksums.
func exchange(d *Device, a, b int64) error {
	var errs []error
	for _, name := range []func(int64) string{segmentName, sumName} {
		from, to := d.path(name(a)), d.path(name(b))
		errs = append(errs, os.Rename(from, from+"x"), os.Rename(to, from), os.Rename(from+"x", to))
	}
	return errors.Join(errs...)
}

// TestExchangedSegments: swapped segments are detected, although all blocks match the
// checksums beside them. A file of checksums without a number is trusted.
func TestExchangedSegments(t *testing.T) { overEngines(t, testExchangedSegments) }

func testExchangedSegments(t *testing.T) {
	d, content := sickDirectory(t)
	reopen := func(want string) {
		t.Helper()
		sick, err := OpenWith(d.Dir(), ofEngine(Options{}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sick.Close() }()
		if err := sick.Start(int64(len(content))); err != nil {
			t.Fatal(err)
		}
		checkSegments(t, sick, content, want, func(err error) bool {
			return strings.Contains(err.Error(), ".sum is lost, restore it (it belongs to 00000000000")
		})
	}
	if err := exchange(d, 1, 2); err != nil {
		t.Fatal(err)
	}
	reopen("rccr")
	if err := exchange(d, 1, 2); err != nil {
		t.Fatal(err)
	}
	reopen("rrrr")
	sums, err := os.OpenFile(d.path(sumName(1)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sums.WriteAt(make([]byte, sumPageSize-len(sumLine)), int64(len(sumLine)))
	if err := errors.Join(err, sums.Close()); err != nil {
		t.Fatal(err)
	}
	reopen("rrrr")
}

// TestLostFilePutBack: files that are removed and put back while the directory is open are
// used again.
func TestLostFilePutBack(t *testing.T) { overEngines(t, testLostFilePutBack) }

func testLostFilePutBack(t *testing.T) {
	for _, name := range []string{segmentName(1), sumName(1), formatName, metaPrefix + "m"} {
		d, content := sickDirectory(t)
		aside := t.TempDir() + "/aside"
		if err := os.Rename(d.path(name), aside); err != nil {
			t.Fatal(err)
		}
		if sick, err := OpenWith(d.Dir(), ofEngine(Options{})); err == nil {
			if err := errors.Join(sick.Start(int64(len(content))), sick.Sync(), sick.Close()); err != nil {
				t.Errorf("without %s: %v", name, err)
			}
		}
		if err := os.Rename(aside, d.path(name)); err != nil {
			t.Fatal(err)
		}
		d = mustOpen(t, d.Dir(), Options{})
		if err := d.Start(int64(len(content))); err != nil {
			t.Fatal(err)
		}
		testrun.Bytes(readAll(t, d, 100, int64(len(content)))).Want(t, content[100:], "with %s put back", name)
	}
}

// TestLostSegmentSaysWhatToDo: the error for a segment that was lost with its checksums
// differs from that for an address never written.
func TestLostSegmentSaysWhatToDo(t *testing.T) {
	d, content := sickDirectory(t)
	if err := errors.Join(os.Remove(d.path(segmentName(1))), os.Remove(d.path(sumName(1)))); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	for segment, lost := range map[int64]bool{1: true, 5: false} {
		_, err := readAll(t, d, segment*minSegmentSize, segment*minSegmentSize+100)
		if !errors.Is(err, device.ErrNotHeld) || !strings.Contains(err.Error(), d.path(segmentName(segment))) ||
			strings.Contains(err.Error(), "restore them") != lost {
			t.Errorf("segment %d: %v", segment, err)
		}
	}
}

// TestReadUnverifiedAgain: data whose checksums are lost can be read without verification.
func TestReadUnverifiedAgain(t *testing.T) { overEngines(t, testReadUnverifiedAgain) }

func testReadUnverifiedAgain(t *testing.T) {
	d, content := sickDirectory(t)
	format := fmt.Appendf(nil, formatLine, 1, minSegmentSize)
	if err := errors.Join(os.Remove(d.path(sumName(1))), os.WriteFile(d.path(formatName), format, 0o666)); err != nil {
		t.Fatal(err)
	}
	alter(t, d.path(segmentName(2)), 7)
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, d, 100, 2*minSegmentSize)).Want(t, content[100:2*minSegmentSize], "read")
	if _, err := readAll(t, d, 2*minSegmentSize, 2*minSegmentSize+1); !errors.Is(err, device.ErrCorrupt) {
		t.Errorf("where the checksums are there: %v, want ErrCorrupt", err)
	}
}

// TestWaitMeansPoll: after Wait, Poll returns a completion, even if the oldest reads do not
// match their checksums and are repeated.
func TestWaitMeansPoll(t *testing.T) { overEngines(t, testWaitMeansPoll) }

func testWaitMeansPoll(t *testing.T) {
	const blocks, sick = 16, 5
	d := started(t, Options{})
	content := fill(t, d, blocks*sumUnit)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	path := d.path(segmentName(0))
	for i := range sick {
		alter(t, path, int64(i*sumUnit+77))
	}
	q, err := d.NewQueue(blocks)
	if err != nil {
		t.Fatal(err)
	}
	memory := device.AlignedBuffer(blocks*sumUnit, sumUnit)
	for i := range uint64(blocks) {
		if err := q.Read(memory[i*sumUnit:][:sumUnit], int64(i*sumUnit), i); err != nil {
			t.Fatal(err)
		}
	}
	for range blocks {
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		var done [1]device.Completion
		if q.Poll(done[:]) != 1 {
			t.Fatal("Wait came back, and Poll has nothing")
		}
		c := done[0]
		switch at := c.Tag * sumUnit; {
		case c.Tag < sick:
			if !errors.Is(c.Err, device.ErrCorrupt) {
				t.Errorf("block %d, which is corrupt: %v", c.Tag, c.Err)
			}
		case c.Err != nil || !bytes.Equal(memory[at:][:sumUnit], content[at:][:sumUnit]):
			t.Errorf("block %d: %v", c.Tag, c.Err)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// TestTakenAwayWhileOpen: Sync fails if a segment's file was removed, and recreates a removed
// file of checksums.
func TestTakenAwayWhileOpen(t *testing.T) { overEngines(t, testTakenAwayWhileOpen) }

func testTakenAwayWhileOpen(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, minSegmentSize/2)
	grow := func(n int) {
		t.Helper()
		more := device.AlignedBuffer(n, d.Alignment())
		if got := devicetest.Write(t, d, more, int64(len(content))); got.Err != nil {
			t.Fatal(got.Err)
		}
		content = append(content, more...)
	}
	if err := errors.Join(d.Sync(), os.Remove(d.path(sumName(0)))); err != nil {
		t.Fatal(err)
	}
	grow(d.Alignment())
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, d, 0, int64(len(content)))).Want(t, content, "read")
	lost := d.path(segmentName(0))
	refused := func() {
		t.Helper()
		grow(d.Alignment())
		for range 2 {
			if err := d.Sync(); !errors.Is(err, device.ErrCorrupt) || !strings.Contains(err.Error(), lost) {
				t.Errorf("%v, want ErrCorrupt and the file's name", err)
			}
		}
	}
	if err := os.Rename(lost, lost+"x"); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := os.WriteFile(lost, content, 0o666); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := errors.Join(os.Rename(lost+"x", lost), d.Sync()); err != nil {
		t.Errorf("it is there again: %v", err)
	}
}
