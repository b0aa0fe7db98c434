package ssdtier

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// otherMemory is memory of another machine.
type otherMemory struct {
	name string

	mu     sync.Mutex
	bytes  []byte
	begun  bool
	writes int
	fails  bool
}

func newOtherMemory(size int) *otherMemory {
	return &otherMemory{name: "cache-7", bytes: make([]byte, size)}
}

func (m *otherMemory) Name() string { return m.name }
func (m *otherMemory) Size() int64  { return int64(len(m.bytes)) }

var errNoMemory = errors.New("no memory")

func (m *otherMemory) Begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun = !m.fails; !m.begun {
		return errNoMemory
	}
	return nil
}

// WriteAt may write some when it fails.
func (m *otherMemory) WriteAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails || !m.begun {
		m.begun = false
		return copy(m.bytes[at:], p[:len(p)/2]), errNoMemory
	}
	m.writes++
	return copy(m.bytes[at:], p), nil
}

func (m *otherMemory) ReadAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.bytes[at:]), nil
}

// stayAway keeps commits in memory until something else brings them home.
func stayAway(t *testing.T) { homeAfter(t, time.Hour) }

func homeAfter(t *testing.T, d time.Duration) {
	t.Helper()
	before := awayTime
	awayTime = d
	t.Cleanup(func() { awayTime = before })
}

func (c *crashed) useMemory() {
	c.t.Helper()
	c.memory.fails = false
	if err := c.d.UseJournal(c.memory); err != nil {
		c.t.Fatal(err)
	}
}

// fetch fetches the last commits after a crash, if they are in memory. It reports whether that was
// lost.
func (c *crashed) fetch(r *rand.Rand, d *Device) (lost bool) {
	c.t.Helper()
	if d.JournalAway() == "" {
		return false
	}
	if _, err := d.ReadMeta("tail"); !errors.Is(err, ErrJournalAway) {
		c.t.Fatalf("metadata without the last commits: %v", err)
	}
	if err := d.Start(0); !errors.Is(err, ErrJournalAway) {
		c.t.Fatalf("start without the last commits: %v", err)
	}
	from := &otherMemory{bytes: bytes.Clone(c.memory.bytes)}
	if r.IntN(3) == 0 {
		clear(from.bytes[:1+r.IntN(len(from.bytes))])
		if err := d.FetchJournal(from); !errors.Is(err, ErrJournalAway) || !strings.Contains(err.Error(), "cache-7") {
			c.t.Fatalf("the last commits of memory that was lost: %v", err)
		}
		if err := d.FetchJournal(nil); err != nil {
			c.t.Fatal(err)
		}
		return true
	}
	if err := d.FetchJournal(from); err != nil {
		c.t.Fatal(err)
	}
	return false
}

// awayLog is a log that has made a commit in the directory and one in memory.
func awayLog(t *testing.T, opts Options) (*crashed, *rand.Rand) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	c := &crashed{t: t, d: started(t, opts), memory: newOtherMemory(1 << 20)}
	c.useMemory()
	for range 2 {
		c.write(r, 1000)
		c.commit()
	}
	if c.memory.writes != 2 { // an empty record, and the commit
		t.Fatalf("%d writes to the memory, want 2", c.memory.writes)
	}
	return c, r
}

// copied is a copy of the directory.
func (c *crashed) copied() string {
	c.t.Helper()
	dir := c.t.TempDir()
	for name, data := range c.files() {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			c.t.Fatal(err)
		}
	}
	return dir
}

// killed is the log in a copy of its directory.
func (c *crashed) killed() *Device {
	c.t.Helper()
	return mustOpen(c.t, c.copied(), Options{SegmentSize: minSegmentSize})
}

// A commit in memory writes nothing to the directory's journal, and is there after a crash.
func TestCommitsInMemory(t *testing.T) {
	stayAway(t)
	c, r := awayLog(t, Options{SegmentSize: minSegmentSize})
	journal := c.files()[journalName]
	for range 50 {
		c.write(r, 100)
		c.commit()
	}
	if !bytes.Equal(journal, c.files()[journalName]) {
		t.Error("commits in memory wrote to the journal of the directory")
	}
	d := c.killed()
	if got := d.JournalAway(); got != "cache-7" {
		t.Errorf("the last commits are in %q, want cache-7", got)
	}
	if err := d.FetchJournal(c.memory); err != nil {
		t.Fatal(err)
	}
	if got := d.JournalAway(); got != "" {
		t.Errorf("the last commits are in %q after they were fetched", got)
	}
	if got := committed(t, d); got != len(c.content) {
		t.Errorf("the log ends at %d, want %d", got, len(c.content))
	}
	// Another crash, before the log is started.
	c.d = d
	d = c.killed()
	if got := d.JournalAway(); got != "" {
		t.Errorf("after another crash the last commits are in %q", got)
	}
	if got := committed(t, d); got != len(c.content) {
		t.Errorf("after another crash the log ends at %d, want %d", got, len(c.content))
	}
	if err := d.Start(int64(len(c.content))); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, d, 0, int64(len(c.content)))).Want(t, c.content, "after another crash")
}

// The directory has all commits a while later, when it is truncated, when metadata that only its
// files have is written, and after Close.
func TestComesHome(t *testing.T) {
	// What writeAway does when the memory fails.
	fail := func(d *Device) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.journal.stale = true
		d.journal.away.failed()
	}
	for _, x := range []struct {
		name  string
		after time.Duration
		do    func(d *Device) error
	}{
		{"in time though the memory has failed", time.Millisecond, func(d *Device) error {
			fail(d)
			away := func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.journal.isAway }
			testrun.Until(t, "the commits are in the directory", func() bool { return !away() })
			return nil
		}},
		{"truncated when the memory has failed", time.Hour, func(d *Device) error { fail(d); return d.Truncate(1) }},
		{"in time", time.Millisecond, func(d *Device) error {
			away := func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.journal.away.on }
			testrun.Until(t, "the commits are in the directory", func() bool { return !away() })
			return nil
		}},
		{"truncated", time.Hour, func(d *Device) error { return d.Truncate(1) }},
		{"object removed", time.Hour, func(d *Device) error {
			w, err := d.CreateObject("x")
			if err == nil {
				err = w.Commit()
			}
			if err != nil {
				return err
			}
			return d.RemoveObject("x")
		}},
		{"other metadata", time.Hour, func(d *Device) error { return d.WriteMeta("other", []byte("x")) }},
		{"no memory any more", time.Hour, func(d *Device) error { return d.UseJournal(nil) }},
		{"closed", time.Hour, (*Device).Close},
	} {
		t.Run(x.name, func(t *testing.T) {
			stayAway(t)
			c, _ := awayLog(t, Options{SegmentSize: minSegmentSize})
			if x.after < time.Hour {
				homeAfter(t, x.after)
				c.d.homeInTime() // the timer of before is an hour
				c.commit()
			}
			if err := x.do(c.d); err != nil {
				t.Fatal(err)
			}
			d := c.killed()
			if name := d.JournalAway(); name != "" {
				t.Fatalf("the last commits are in %q", name)
			}
			if got := committed(t, d); got != len(c.content) {
				t.Errorf("the log ends at %d, want %d", got, len(c.content))
			}
		})
	}
}

// A commit that the memory does not take is durable in the directory, as are those before it; and the
// memory is used again later.
func TestMemoryFails(t *testing.T) {
	stayAway(t)
	c, r := awayLog(t, Options{SegmentSize: minSegmentSize})
	c.memory.fails = true
	for range 3 {
		c.write(r, 100)
		c.commit()
		d := c.killed()
		if name := d.JournalAway(); name != "" {
			t.Fatalf("the last commits are in %q, which has failed", name)
		}
		if got := committed(t, d); got != len(c.content) {
			t.Fatalf("the log ends at %d, want %d", got, len(c.content))
		}
	}
	c.memory.fails = false
	before := c.memory.writes
	c.commit()
	if c.memory.writes != before {
		t.Error("the memory is used at once after it has failed")
	}
	c.d.journal.away.notBefore = time.Time{}
	c.write(r, 100)
	c.commit()
	if c.memory.writes == before {
		t.Error("the memory is not used any more")
	}
}

// A full memory is used again from its start.
func TestMemoryIsFull(t *testing.T) {
	stayAway(t)
	r := rand.New(rand.NewPCG(1, 1))
	c := &crashed{t: t, d: started(t, Options{SegmentSize: minSegmentSize}), memory: newOtherMemory(16 << 10)}
	c.useMemory()
	for range 200 {
		c.write(r, 100)
		c.commit()
	}
	if c.memory.writes < 100 {
		t.Errorf("%d of 200 commits went to the memory", c.memory.writes)
	}
	d := c.killed()
	if d.JournalAway() != "" {
		if err := d.FetchJournal(c.memory); err != nil {
			t.Fatal(err)
		}
	}
	if got := committed(t, d); got != len(c.content) {
		t.Errorf("the log ends at %d, want %d", got, len(c.content))
	}
}

// Of memory that ends with the process, an opening expects nothing, and says so.
func TestMemoryOfTheProcess(t *testing.T) {
	stayAway(t)
	c := &crashed{t: t, d: started(t, Options{SegmentSize: minSegmentSize}), memory: newOtherMemory(1 << 20)}
	c.memory.name = ""
	c.useMemory()
	r := rand.New(rand.NewPCG(1, 1))
	home := 0
	for i := range 3 {
		c.write(r, 100)
		c.commit()
		if i == 0 {
			home = len(c.content)
		}
	}
	var log bytes.Buffer
	d := mustOpen(t, c.copied(), Options{SegmentSize: minSegmentSize, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if got := committed(t, d); got != home {
		t.Errorf("the log ends at %d, want %d, the commit in the directory", got, home)
	}
	if !strings.Contains(log.String(), "last second are lost") {
		t.Errorf("the log says %q", &log)
	}
}

// A directory whose last commits are in memory says so to who inspects it.
func TestInspectAway(t *testing.T) {
	stayAway(t)
	c, _ := awayLog(t, Options{SegmentSize: minSegmentSize})
	report, err := Inspect(c.copied())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(report.String(), `memory "cache-7"`) {
		t.Errorf("the report does not say where the last commits are:\n%v", report)
	}
}
