package ssdtier

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// withHalf makes the halves of journals small, so that they turn over often.
func withHalf(t *testing.T, n int64) {
	t.Helper()
	before := journalHalf
	journalHalf = n
	t.Cleanup(func() { journalHalf = before })
}

// commit commits with a log's tail as metadata.
func (c *crashed) commit() {
	c.t.Helper()
	if err := c.d.Commit("tail", binary.LittleEndian.AppendUint64(nil, uint64(len(c.content)))); err != nil {
		c.t.Fatal(err)
	}
}

// commitWith commits n new bytes, whose write may begin later. Or the log is written, with more,
// while the commit waits for the device.
func (c *crashed) commitWith(r *rand.Rand, n int) {
	c.t.Helper()
	c.extend(r, n)
	src, addr := c.unwritten()
	tail := len(c.content)
	meta := binary.LittleEndian.AppendUint64(nil, uint64(tail))
	switch r.IntN(6) {
	case 0:
		c.write(r, 1+r.IntN(6000))
	case 1:
		c.write(r, 300_000) // too much for the journal
	}
	done, err := c.d.CommitWith(src, addr, "tail", meta)
	if err == nil && !done {
		c.flush()
		err = c.d.Commit("tail", meta)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.noteCommit(tail)
}

// noteCommit notes what a commit of the log up to tail has made durable: all files if the journal
// has turned over, and otherwise the journal.
func (c *crashed) noteCommit(tail int) {
	c.t.Helper()
	j := &c.d.journal
	if c.tail = tail; j.at.generation != c.generation || j.file == nil {
		c.generation, c.disk, c.home = j.at.generation, c.files(), tail
		return
	}
	if !j.away.on {
		c.home = tail
	}
	c.disk[journalName] = c.files()[journalName]
}

// committed is the tail in the metadata of a directory's device.
func committed(t *testing.T, d *Device) int {
	t.Helper()
	data, err := d.ReadMeta("tail")
	if err != nil {
		t.Fatal(err)
	}
	return int(binary.LittleEndian.Uint64(data))
}

// TestCrashOfCommits crashes a log at random moments between and during commits: what was
// committed last is there, or a commit that was under way, and nothing else.
func TestCrashOfCommits(t *testing.T) { overEngines(t, testCrashOfCommits) }

func testCrashOfCommits(t *testing.T) {
	withHalf(t, 64<<10)
	for seed := uint64(0); seed < 28; seed += uint64(testrun.Raced(1, 4)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			opts := Options{SegmentSize: minSegmentSize, Buffered: seed%2 == 0, Workers: 2}
			c := &crashed{t: t, d: started(t, opts)}
			if seed >= 20 { // commits are in memory
				stayAway(t)
				c.memory = newOtherMemory(96 << 10)
				c.useMemory()
			}
			c.commit()
			c.noteCommit(len(c.content))
			for range 4 {
				write := func() {
					n := 1 + r.IntN(300)
					switch r.IntN(6) {
					case 0:
						n = 1 + r.IntN(20_000)
					case 1:
						n = 300_000 // too much for the journal
					}
					c.write(r, n)
				}
				for range 1 + r.IntN(12) {
					with := r.IntN(2) == 0
					if !with || r.IntN(3) == 0 {
						write()
					}
					if with {
						c.commitWith(r, 1+r.IntN(6000))
					}
					switch r.IntN(8) {
					case 0:
						c.sync() // tail is not committed
						c.noteCommit(committed(t, c.d))
						c.disk = c.files()
					case 1:
						if err := c.d.Truncate(int64(r.IntN(committed(t, c.d) + 1))); err != nil {
							t.Fatal(err)
						}
						c.noteCommit(c.tail)
						c.disk[beginName] = c.files()[beginName]
					case 2:
						if err := c.d.WriteMeta("other", []byte(fmt.Sprint(seed))); err != nil {
							t.Fatal(err)
						}
						c.noteCommit(c.tail)
					case 3:
						c.d.homeInTime()
						c.noteCommit(c.tail)
					case 4:
						if c.memory != nil {
							c.memory.fails = r.IntN(2) == 0
						}
					default:
						c.flush()
						c.commit()
						c.noteCommit(len(c.content))
					}
				}
				underWay := c.tail
				switch r.IntN(3) {
				case 0:
					c.commitWith(r, 100)
					underWay = c.tail
				case 1:
					write()
					before := c.d.journal.at.generation
					c.commit()
					underWay = len(c.content)
					if c.d.journal.at.generation != before {
						// Segments were synced before the journal was written: a crash in between
						// leaves the commit before, one after it this one.
						c.noteCommit(underWay)
					}
				}
				if r.IntN(2) == 0 {
					c.write(r, 1+r.IntN(6000))
				}
				old := c.d
				c.d = c.crashCommitted(r, opts, underWay)
				if err := old.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// crashCommitted is crash with a tail from the metadata.
func (c *crashed) crashCommitted(r *rand.Rand, opts Options, underWay int) *Device {
	c.t.Helper()
	dir := c.copyTorn(r)
	c.checkOffline(dir)
	d := mustOpen(c.t, dir, opts)
	if c.fetch(r, d) {
		c.tail, underWay = c.home, max(underWay, c.home)
	}
	tail := committed(c.t, d)
	if tail != c.tail && tail != underWay {
		c.t.Fatalf("the log ends at %d after a crash, want %d or %d", tail, c.tail, underWay)
	}
	if err := d.Start(int64(tail)); err != nil {
		c.t.Fatal(err)
	}
	c.tail, c.written, c.content = tail, tail, c.content[:tail]
	begin := d.Begin()
	testrun.Bytes(readAll(c.t, d, begin, int64(tail))).Want(c.t, c.content[begin:], "after a crash with %d bytes committed", tail)
	c.disk, c.generation, c.home = filesOf(c.t, d.Dir()), d.journal.at.generation, tail
	if c.memory != nil {
		c.d = d
		c.useMemory()
	}
	return d
}

// checkOffline compares what a Reader has with the log.
func (c *crashed) checkOffline(dir string) {
	c.t.Helper()
	r, err := NewReader(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	data, err := r.ReadMeta("tail")
	if err != nil {
		c.t.Fatal(err)
	}
	tail := int64(binary.LittleEndian.Uint64(data))
	report, err := Inspect(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range report.Segments { // later ones may have lost their sums
		if (s.Number+1)*minSegmentSize <= tail && s.Verified < minSegmentSize/sumUnit {
			c.t.Fatalf("Inspect, of a log that ends at %d:\n%v", tail, report)
		}
	}
	got := make([]byte, tail-r.Begin())
	_, err = r.ReadAt(got, r.Begin())
	testrun.Bytes(got, err).Want(c.t, c.content[r.Begin():tail], "reading %d to %d offline", r.Begin(), tail)
	if err := r.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// TestRecentBlocks: a write that began before a commit, and ends after it, is older than what the
// commit has; one with all of it ends what is owed.
func TestRecentBlocks(t *testing.T) {
	block := func(n int) []byte {
		return append(bytes.Repeat([]byte{7}, n), make([]byte, sumUnit-n)...)
	}
	r := recentBlocks{owed: map[int64]journalBlock{0: {0, sumUnit, block(50)}}}
	r.add(block(40), 0, sumUnit)
	if all, _ := r.with(nil, 0, sumUnit); len(all) > 0 || len(r.owed) != 1 {
		t.Fatalf("an older version: %d blocks, %d owed", len(all), len(r.owed))
	}
	if all, owed := r.with(block(60), 0, sumUnit); len(all) != 1 || len(owed) != 1 || len(all[0].data) != 60 {
		t.Fatalf("a newer commit: %v, %v", all, owed)
	}
	r.add(block(55), 0, sumUnit)
	if all, owed := r.with(nil, 0, sumUnit); len(all) != 1 || len(owed) > 0 || len(r.owed) > 0 {
		t.Fatalf("a newer version: %d blocks, %d owed by the commit, %d owed", len(all), len(owed), len(r.owed))
	}
}

// TestJournalIsRemoved: after Close the directory has the metadata in its file, and no journal.
func TestJournalIsRemoved(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 3*sumUnit)
	for i := range 3 {
		if err := d.Commit("m", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(d.path(journalName)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.path(journalName)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the journal after Close: %v", err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	if data, err := d.ReadMeta("m"); err != nil || !bytes.Equal(data, []byte{2}) {
		t.Fatalf("%v, %v", data, err)
	}
}

// TestJournalIsLost: metadata that the journal has, has no file, so that a directory without its journal
// has none, in place of earlier one.
func TestJournalIsLost(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 3*sumUnit)
	if err := errors.Join(d.Commit("m", []byte("earlier")), d.WriteMeta("n", []byte("earlier")), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	// The first begins a generation, the second is its next record.
	if err := errors.Join(d.Commit("m", []byte("later")), d.Commit("n", []byte("later"))); err != nil {
		t.Fatal(err)
	}
	if names, err := filepath.Glob(d.path(metaPrefix + "*")); err != nil || len(names) > 0 {
		t.Errorf("files of metadata that the journal has: %v, %v", names, err)
	}
	for _, name := range []string{"lost", "lost[1]", "lost["} { // which is not taken for a pattern
		lost := filepath.Join(t.TempDir(), name)
		if err := errors.Join(os.CopyFS(lost, os.DirFS(d.Dir())), os.Remove(filepath.Join(lost, journalName))); err != nil {
			t.Fatal(err)
		}
		again := mustOpen(t, lost, Options{})
		if _, err := again.ReadMeta("m"); !errors.Is(err, ErrFormat) || errors.Is(err, device.ErrNoMeta) {
			t.Errorf("%s: metadata without the journal: %v, want ErrFormat", name, err)
		}
		if _, err := mustOpen(t, filepath.Join(t.TempDir(), name), Options{}).ReadMeta("m"); !errors.Is(err, device.ErrNoMeta) {
			t.Errorf("%s: metadata of a new directory: %v", name, err)
		}
	}
}

// TestSmallCommits: a commit of little is one write to the journal, and no sync of a segment.
func TestSmallCommits(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	fill(t, d, sumUnit)
	if err := d.Commit("m", nil); err != nil { // of a new segment, whose name is synced
		t.Fatal(err)
	}
	for i := range 5 {
		if err := writeBlocks(t, d, append(bytes.Repeat([]byte{byte(i)}, 100), make([]byte, sumUnit-100)...), 0); err != nil {
			t.Fatal(err)
		}
		before := d.journal.at
		if err := d.Commit("m", []byte("small")); err != nil {
			t.Fatal(err)
		}
		after := d.journal.at
		if after.generation != before.generation || after.number != before.number+1 || after.offset-before.offset != sumUnit {
			t.Fatalf("from %+v to %+v", before, after)
		}
		if !d.segments.get(0).dirty.Load() {
			t.Fatal("the segment was synced")
		}
	}
	before := d.journal.at
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if after := d.journal.at; after.generation != before.generation+1 || after.half == before.half {
		t.Fatalf("after Sync %+v, before %+v", after, before)
	}
}

// TestJournalRemovedInUse: commits after somebody removed the journal are durable.
func TestJournalRemovedInUse(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	for i := range 3 {
		if err := writeBlocks(t, d, bytes.Repeat([]byte{byte(i)}, sumUnit), int64(i)*sumUnit); err != nil {
			t.Fatal(err)
		}
		if err := d.Commit("m", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(d.path(journalName)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Commit("m", []byte("last")); err != nil {
		t.Fatal(err)
	}
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	if data, err := again.ReadMeta("m"); err != nil || string(data) != "last" {
		t.Fatalf("%q, %v", data, err)
	}
}

// TestStartForgetsBlocks: no journal has blocks that were written before a Start with a lower tail.
func TestStartForgetsBlocks(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	fill(t, d, 3*minSegmentSize)
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	if err := writeBlocks(t, d, make([]byte, sumUnit), 2*minSegmentSize); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(minSegmentSize); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit("m", []byte("started")); err != nil {
		t.Fatal(err)
	}
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	if data, err := again.ReadMeta("m"); err != nil || string(data) != "started" {
		t.Fatalf("%q, %v", data, err)
	}
}

// TestLargeMetadata: metadata that does not fit into a record has its file again.
func TestLargeMetadata(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	for _, n := range []int{1, journalMetas + 1, 2, journalMetas + 2, 3} {
		want := bytes.Repeat([]byte{1}, n)
		if err := d.Commit("m", want); err != nil {
			t.Fatal(err)
		}
		c := crashed{t: t, d: d}
		c.disk = c.files()
		again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
		if data, err := again.ReadMeta("m"); err != nil || !bytes.Equal(data, want) {
			t.Fatalf("%d bytes, %v, want %d", len(data), err, n)
		}
	}
}

// TestDamagedJournal: an altered record that others follow is an error of Open, which names the
// file; the last one counts as torn.
func TestDamagedJournal(t *testing.T) {
	for _, c := range []struct {
		name   string
		before bool // there is a generation before
		record int64
		want   byte // metadata; 0: Open fails
	}{{"first", false, 0, 0}, {"second", false, 1, 0}, {"last", false, 3, 2}, {"first of the second generation", true, 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			d := started(t, Options{SegmentSize: minSegmentSize})
			if c.before {
				if err := d.Commit("m", nil); err != nil {
					t.Fatal(err)
				}
				d.journal.stale = true // it turns over
			}
			for i := range byte(4) {
				if err := d.Commit("m", []byte{i}); err != nil {
					t.Fatal(err)
				}
			}
			at := int64(d.journal.at.half)*journalHalf + c.record*sumUnit + 40
			x := crashed{t: t, d: d}
			x.disk = x.files()
			dir := x.copyTorn(rand.New(rand.NewPCG(1, 1)))
			alter(t, filepath.Join(dir, journalName), at)
			again, err := Open(dir)
			if c.want == 0 {
				if !errors.Is(err, device.ErrCorrupt) || !strings.Contains(err.Error(), journalName) {
					t.Fatalf("%v, want ErrCorrupt and %s", err, journalName)
				}
				report, err := Inspect(dir)
				if err != nil || report.OK() {
					t.Fatalf("Inspect: %v, %v", err, report)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = again.Close() }()
			if data, err := again.ReadMeta("m"); err != nil || !slices.Equal(data, []byte{c.want}) {
				t.Fatalf("%v, %v", data, err)
			}
		})
	}
}

// FuzzJournal: no file makes parseJournal panic, and what it accepts it accepts again when it
// is written anew.
func FuzzJournal(f *testing.F) {
	r := journalRecord{generation: 7, metas: map[string][]byte{"m": []byte("data")}, blocks: []journalBlock{{addr: sumUnit, size: sumUnit, data: []byte("block")}}}
	f.Add(r.appendTo(nil, sumUnit))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = parseJournal(data)
		got, _, ok := parseRecord(data)
		if !ok {
			return
		}
		again, _, ok := parseRecord(got.appendTo(nil, sumUnit))
		if !ok || again.generation != got.generation || len(again.metas) != len(got.metas) || len(again.blocks) != len(got.blocks) {
			t.Fatalf("%+v became %+v", got, again)
		}
	})
}

// TestWriteEndsDuringSync: a block that a commit took before its write ended, which is when a Sync
// has begun, is in the journal of the next generation.
func TestWriteEndsDuringSync(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 2*sumUnit)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.Commit("m", nil))
	src := device.AlignedBuffer(sumUnit, d.Alignment())
	copy(src, "the end of the log")
	if done, err := d.CommitWith(src, 2*sumUnit, "m", []byte("with")); !done || err != nil {
		t.Fatal(done, err)
	}
	func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		must(d.syncAll())
		d.segments.get(0).wrote(src, 2*sumUnit) // as if during the fsync; the disk has not stored it
		must(d.voidJournal())
	}()
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	tail := int64(2*sumUnit + len("the end of the log"))
	must(again.Start(tail))
	want := append(content, "the end of the log"...)
	testrun.Bytes(readAll(t, again, 0, tail)).Want(t, want, "read")
}

// TestCommitWithTurnsOver: commits of a log's end that has not been written go on when the journal
// turns over.
func TestCommitWithTurnsOver(t *testing.T) {
	withHalf(t, 32<<10)
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 2*sumUnit)
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	generation := d.journal.at.generation
	src := device.AlignedBuffer(sumUnit, d.Alignment())
	for i := range 100 {
		src[i] = byte(i + 1)
		if done, err := d.CommitWith(src, 2*sumUnit, "m", []byte{byte(i)}); !done || err != nil {
			t.Fatalf("commit %d: done %v, %v", i, done, err)
		}
	}
	if n := d.journal.at.generation - generation; n < 2 {
		t.Fatalf("the journal turned over %d times", n)
	}
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	if data, err := again.ReadMeta("m"); err != nil || !bytes.Equal(data, []byte{99}) {
		t.Fatalf("%v, %v", data, err)
	}
	if err := again.Start(2*sumUnit + 100); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, again, 0, 2*sumUnit+100)).Want(t, append(content, src[:100]...), "read")
}

// TestOvertakenCommitWith: the block in which a commit ends is written with more of the log while
// the commit waits for the device, whatever the device then knows of that. Later commits have all.
func TestOvertakenCommitWith(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, d *Device){
		"nothing":         func(*testing.T, *Device) {},
		"many blocks":     func(_ *testing.T, d *Device) { d.journal.recent.lose() },
		"full journal":    func(_ *testing.T, d *Device) { d.journal.at.offset = journalHalf },
		"journal is torn": func(_ *testing.T, d *Device) { d.journal.stale = true },
		"sync": func(t *testing.T, d *Device) {
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, closed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, closed %v", name, closed), func(t *testing.T) {
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				d := started(t, Options{SegmentSize: minSegmentSize})
				content := fill(t, d, sumUnit)
				must(d.Commit("m", nil))
				src, newer := device.AlignedBuffer(sumUnit, d.Alignment()), device.AlignedBuffer(sumUnit, d.Alignment())
				copy(newer, bytes.Repeat([]byte("all of the block "), sumUnit/16))
				copy(src, newer[:100])
				must(writeBlocks(t, d, newer, sumUnit))
				meanwhile(t, d)
				done, err := d.CommitWith(src, sumUnit, "m", []byte{1})
				must(err)
				if !done {
					must(d.Commit("m", []byte{1}))
				}
				must(d.Commit("m", []byte{2})) // of a log that ends with the block
				dir := d.Dir()
				if closed {
					must(d.Close())
				} else {
					c := crashed{t: t, d: d}
					c.disk = c.files()
					dir = c.copyTorn(rand.New(rand.NewPCG(1, 1)))
				}
				again := mustOpen(t, dir, Options{})
				must(again.Start(2 * sumUnit))
				testrun.Bytes(readAll(t, again, 0, 2*sumUnit)).Want(t, append(content, newer...), "read")
			})
		}
	}
}

// TestLateCommitWith: a commit whose copy of the log's last block is older than what was synced
// meanwhile is refused.
func TestLateCommitWith(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	fill(t, d, sumUnit)
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	old := device.AlignedBuffer(sumUnit, d.Alignment())
	copy(old, "old")
	newer := device.AlignedBuffer(sumUnit, d.Alignment())
	copy(newer, "old and new")
	if err := writeBlocks(t, d, newer, sumUnit); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if done, err := d.CommitWith(old, sumUnit, "m", nil); done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	if done, err := d.CommitWith(old, 2*sumUnit, "m", nil); !done || err != nil {
		t.Fatalf("the next block: done %v, %v", done, err)
	}
}

// padded returns a block that begins with text.
func padded(d *Device, text string) []byte {
	block := device.AlignedBuffer(sumUnit, d.Alignment())
	copy(block, text)
	return block
}

// TestLateCommitOfSeveralBlocks: a commit is refused, too, if a block after the first is older than
// what was synced meanwhile.
func TestLateCommitOfSeveralBlocks(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, sumUnit)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.Commit("m", nil))
	first, old, newer := padded(d, strings.Repeat("a", sumUnit)), padded(d, "old"), padded(d, "old and new")
	must(writeBlocks(t, d, newer, 2*sumUnit))
	must(d.Sync())
	must(writeBlocks(t, d, first, sumUnit))
	both := device.AlignedBuffer(2*sumUnit, d.Alignment())
	copy(both, first)
	copy(both[sumUnit:], old)
	if done, err := d.CommitWith(both, sumUnit, "m", []byte{1}); done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	must(d.Commit("m", []byte{2}))
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	must(again.Start(3 * sumUnit))
	testrun.Bytes(readAll(t, again, 0, 3*sumUnit)).Want(t, slices.Concat(content, first, newer), "read")
}

// TestCommitWithOfWhatIsThere: a block that was written and synced before its commit is owed no more,
// so that Close leaves no journal.
func TestCommitWithOfWhatIsThere(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	fill(t, d, sumUnit)
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	src := padded(d, "the end")
	if err := errors.Join(writeBlocks(t, d, src, sumUnit), d.Sync()); err != nil {
		t.Fatal(err)
	}
	if done, err := d.CommitWith(src, sumUnit, "m", []byte{1}); !done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	if n := len(d.journal.recent.owed); n > 0 {
		t.Errorf("%d blocks are owed", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.path(journalName)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the journal after Close: %v", err)
	}
}

// TestTurnOverThatFails: after a commit that synced the segments, and then failed, no later one
// leaves older versions of their blocks in the journal.
func TestTurnOverThatFails(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, sumUnit)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.Commit("m", nil))
	newer := padded(d, "old and new")
	must(writeBlocks(t, d, padded(d, "old"), sumUnit))
	must(d.Commit("m", nil))
	must(writeBlocks(t, d, newer, sumUnit))
	openFile = func(name string, flag int, perm fs.FileMode) (*os.File, error) {
		if strings.HasPrefix(filepath.Base(name), metaPrefix) {
			return nil, syscall.EIO
		}
		return os.OpenFile(name, flag, perm)
	}
	err := d.Commit("m", make([]byte, journalMetas+1))
	openFile = os.OpenFile
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("a commit whose file cannot be made: %v", err)
	}
	must(d.Commit("m", []byte{1}))
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	must(again.Start(2 * sumUnit))
	testrun.Bytes(readAll(t, again, 0, 2*sumUnit)).Want(t, append(content, newer...), "read")
}

// unwritable makes the journal a file that cannot be written.
func unwritable(t *testing.T, d *Device) {
	t.Helper()
	readOnly, err := os.Open(d.path(journalName))
	if err != nil {
		t.Fatal(err)
	}
	_ = d.journal.file.Close()
	d.journal.file = readOnly
}

// TestUnwritableJournalOwes: a journal that cannot be written stays while only it has a block.
func TestUnwritableJournalOwes(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, sumUnit)
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	src := device.AlignedBuffer(sumUnit, d.Alignment())
	copy(src, "end")
	if done, err := d.CommitWith(src, sumUnit, "m", []byte("with")); !done || err != nil {
		t.Fatal(done, err)
	}
	unwritable(t, d)
	if err := d.Sync(); !errors.Is(err, device.ErrTransient) {
		t.Fatalf("Sync: %v, want ErrTransient", err)
	}
	if err := writeBlocks(t, d, src, sumUnit); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	if data, err := again.ReadMeta("m"); err != nil || string(data) != "with" {
		t.Fatalf("%q, %v", data, err)
	}
	tail := int64(sumUnit + 3)
	if err := again.Start(tail); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, again, 0, tail)).Want(t, append(content, "end"...), "read")
}

// TestStartVoidsJournal: Start makes what it restored durable, or leaves it in the journal.
func TestStartVoidsJournal(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	fill(t, d, 2*sumUnit)
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	if err := writeBlocks(t, d, make([]byte, sumUnit), sumUnit); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	blocks := func(d *Device) int {
		j, err := readJournal(d.path(journalName))
		if err != nil {
			t.Fatal(err)
		}
		return len(j.blocks)
	}
	c := crashed{t: t, d: d}
	c.disk = c.files()
	again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
	again.syncErr = errors.New("the disk is sick")
	if err := again.Start(2 * sumUnit); err == nil || blocks(again) != 1 {
		t.Fatalf("Start with a failed Sync: %v, %d blocks in the journal", err, blocks(again))
	}
	again.syncErr = nil
	if err := again.Start(2 * sumUnit); err != nil || blocks(again) != 0 {
		t.Fatalf("Start: %v, %d blocks in the journal", err, blocks(again))
	}
}

// TestUnwritableJournal: commits go on without a journal that cannot be written.
func TestUnwritableJournal(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	fill(t, d, sumUnit)
	for i := range 2 {
		if err := d.Commit("m", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	unwritable(t, d)
	for i := range 2 {
		want := []byte{7, byte(i)}
		if err := d.Commit("m", want); err != nil {
			t.Fatal(err)
		}
		c := crashed{t: t, d: d}
		c.disk = c.files()
		again := mustOpen(t, c.copyTorn(rand.New(rand.NewPCG(1, 1))), Options{})
		if data, err := again.ReadMeta("m"); err != nil || !bytes.Equal(data, want) {
			t.Fatalf("%v, %v", data, err)
		}
	}
}
