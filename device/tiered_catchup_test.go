package device_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// logLines collects log output.
type logLines struct{ bytes.Buffer }

// leaveBehind writes pages to two tiers and then abandons them without closing, when the last
// tier has the first page only. The others are committed, and their writes to the last tier
// are stuck by the options.
func leaveBehind(t *testing.T, first, last device.Device, begin int64, stuck device.FaultyOptions, pages ...string) {
	t.Helper()
	leaveBehindIn(t, []device.Device{first}, last, begin, stuck, pages...)
}

// leaveBehindIn is leaveBehind with several tiers before the last.
func leaveBehindIn(t *testing.T, before []device.Device, last device.Device, begin int64, stuck device.FaultyOptions, pages ...string) {
	t.Helper()
	faulty := device.NewFaulty(last, device.FaultyOptions{})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, append(before, faulty)...))
	q, err := d.NewQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, q}
	if err := b.writeAll(pages[0], 0); err != nil {
		t.Fatal(err)
	}
	faulty.Set(stuck)
	at := int64(len(pages[0]))
	for _, page := range pages[1:] {
		if c := b.write(page, at); c.Event != device.Committed {
			t.Fatalf("%+v", c)
		}
		at += int64(len(page))
	}
	faulty.Set(device.FaultyOptions{})
	if err := errors.Join(d.Truncate(begin), d.Sync()); err != nil {
		t.Fatal(err)
	}
}

// Start copies pages to the last tier that were committed, but still pending there at the
// crash.
func TestCatchUp(t *testing.T) {
	for name, begin := range map[string]int64{"from the beginning": 0, "from a truncation on": 6, "from another one": 9} {
		t.Run(name, func(t *testing.T) {
			first, last := device.NewMemory(), device.NewMemory()
			leaveBehind(t, first, last, begin, device.FaultyOptions{Stuck: 1, LostWrite: 1}, "aaaa", "bbbb", "cccc")
			d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet, RefillRate: -1}, first.Reopen(), last.Reopen())
			if err := d.Start(11); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			newBench(t, startedAt(t, last.Reopen(), 11)).wantRead("aaaabbbbccc"[begin:], begin, 0)
		})
	}
}

// Start copies what was committed and has failed on the last tier.
func TestCatchUpFailed(t *testing.T) {
	first, last := device.NewMemory(), device.NewMemory()
	faulty := device.NewFaulty(last, device.FaultyOptions{})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first, faulty))
	b := newBench(t, d)
	if err := b.writeAll("aaaa", 0); err != nil {
		t.Fatal(err)
	}
	faulty.Set(device.FaultyOptions{Stuck: 1, WriteError: 1})
	if c := b.write("bbbb", 4); c.Event != device.Committed {
		t.Fatalf("%+v", c)
	}
	faulty.Release()
	if c := b.next(); c.Event != device.Released || c.Err == nil {
		t.Fatalf("%+v", c)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	again := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet, RefillRate: -1}, first.Reopen(), last.Reopen())
	if err := again.Start(8); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	newBench(t, startedAt(t, last.Reopen(), 8)).wantRead("aaaabbbb", 0, 0)
}

// Prepare also makes the log whole before it is truncated.
func TestCatchUpPrepared(t *testing.T) {
	first, last := device.NewMemory(), device.NewMemory()
	leaveBehind(t, first, last, 0, device.FaultyOptions{Stuck: 1, LostWrite: 1}, "aaaa", "bbbb")
	for _, end := range []int64{8, 6} { // the second time, the last tier has everything
		d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet, RefillRate: -1}, first.Reopen(), last.Reopen())
		look := func(end int64, tier uint8) {
			q, err := d.NewQueue(1)
			if err != nil {
				t.Fatal(err)
			}
			(&bench{t, q}).wantRead("aaaabbbb"[:end], 0, tier)
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := d.Prepare(end); err != nil {
			t.Fatal(err)
		}
		look(end, 1)
		if err := d.Start(end - 1); err != nil {
			t.Fatal(err)
		}
		look(end-1, 0)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// closedFor is a device that may give no queues.
type closedFor struct {
	device.Device
	all bool
}

func (c *closedFor) NewQueue(depth int) (device.Queue, error) {
	if c.all {
		return nil, device.ErrFault
	}
	return c.Device.NewQueue(depth)
}

// A tier that has failed in Prepare, with bytes that another tier has too, is not in the set after Start.
func TestFailedInPrepare(t *testing.T) {
	first, second, last := device.NewMemory(), device.NewMemory(), device.NewMemory()
	firstFaulty, lastFaulty := device.NewFaulty(first, device.FaultyOptions{}), device.NewFaulty(last, device.FaultyOptions{})
	opts := device.TieredOptions{CommitPoint: 2, RetryAfter: 1, Logger: quiet, RefillRate: -1}
	d := started(t, device.NewTieredWith(opts, firstFaulty, second, lastFaulty)).(*device.Tiered)
	q, err := d.NewQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, q}
	if err := b.writeAll("aaaa", 0); err != nil {
		t.Fatal(err)
	}
	firstFaulty.Set(device.FaultyOptions{WriteError: 1})
	err = b.writeAll("bbbb", 4)
	firstFaulty.Set(device.FaultyOptions{})
	testrun.Until(t, "the first tier is back", func() bool { b.wantRead("bbbb", 4, 1); return d.Metrics()[0].Healthy })
	if err := errors.Join(err, b.writeAll("cccc", 8), d.Sync()); err != nil { // stores the floor
		t.Fatal(err)
	}
	lastFaulty.Set(device.FaultyOptions{Stuck: 1, LostWrite: 1})
	if c := b.write("dddd", 12); c.Event != device.Committed {
		t.Fatalf("%+v", c)
	}
	lastFaulty.Set(device.FaultyOptions{})
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	noQueue := &closedFor{first.Reopen(), true}
	ill := device.NewFaulty(noQueue, device.FaultyOptions{})
	opts.RetryAfter = time.Hour
	d = device.NewTieredWith(opts, ill, second.Reopen(), last.Reopen())
	if err := d.Prepare(16); err != nil {
		t.Fatal(err)
	}
	noQueue.all = false
	b = newBench(t, startedAt(t, d, 16))
	ill.Set(device.FaultyOptions{WriteError: 1})
	err = b.writeAll("eeee", 16)
	ill.Set(device.FaultyOptions{})
	if err := errors.Join(err, b.writeAll("ffff", 20)); err != nil {
		t.Fatal(err)
	}
	b.wantRead("eeeeffff", 16, 1)
}

// A tier that fails in Prepare or Start is not used.
func TestPreparedWithoutATier(t *testing.T) {
	last := device.NewMemory()
	if err := newBench(t, started(t, last)).writeAll("aaaabbbb", 0); err != nil {
		t.Fatal(err)
	}
	down := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Down: true})
	d := device.NewTieredWith(device.TieredOptions{Logger: quiet}, down, last)
	if err := d.Prepare(8); err != nil {
		t.Fatal(err)
	}
	newBench(t, startedAt(t, d, 4)).wantRead("aaaa", 0, 1)
}

// If no other tier has the missing bytes, Start reports that and continues.
func TestCatchUpInVain(t *testing.T) {
	last := device.NewMemory()
	leaveBehind(t, volatile(), last, 0, device.FaultyOptions{Stuck: 1}, "aaaa", "bbbb")
	var said logLines
	logger := slog.New(slog.NewTextHandler(&said, nil))
	again := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: logger}, volatile(), last.Reopen())
	newBench(t, startedAt(t, again, 8)).wantRead("aaaabbbb", 0, 1)
	if !strings.Contains(said.String(), "from=4 bytes=4") {
		t.Errorf("logged %q", said.String())
	}
}

// A tier that holds the missing bytes and cannot be read makes Start and Prepare fail, and nothing is
// forgotten: once it can be read, the last tier gets them.
func TestCatchUpWithATierDown(t *testing.T) {
	for name, faults := range map[string]device.FaultyOptions{
		"start": {Down: true}, "reads": {ReadError: 1},
	} {
		t.Run(name, func(t *testing.T) {
			first, last := device.NewMemory(), device.NewMemory()
			leaveBehindIn(t, []device.Device{first, volatile()}, last, 0, device.FaultyOptions{Stuck: 1, LostWrite: 1}, "aaaa", "bbbb")
			for _, open := range []func(*device.Tiered) error{
				func(d *device.Tiered) error { return d.Start(8) },
				func(d *device.Tiered) error { return d.Prepare(8) },
			} {
				// That the second tier has a hole there does not make failed reads look so.
				d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet},
					device.NewFaulty(first.Reopen(), faults), newLossy(1, 64, 64), last.Reopen())
				if err := open(d); !errors.Is(err, device.ErrFault) {
					t.Errorf("without the first tier: %v", err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			d := device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first.Reopen(), last.Reopen())
			if err := errors.Join(d.Start(8), d.Close()); err == nil || !strings.Contains(err.Error(), "not with 2") {
				t.Errorf("with another number of tiers: %v", err)
			}
			d = device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet, RefillRate: -1}, first.Reopen(), volatile(), last.Reopen())
			if err := errors.Join(d.Start(8), d.Close()); err != nil {
				t.Fatal(err)
			}
			newBench(t, startedAt(t, last.Reopen(), 8)).wantRead("aaaabbbb", 0, 0)
		})
	}
}

// Floors that cannot be read may say that the last tier lacks something, if it is behind the commit point.
func TestUnreadableFloors(t *testing.T) {
	for commit, refused := range map[int]bool{1: true, 2: false} {
		last := device.NewMemory()
		if err := last.WriteMeta("tiered.floors", []byte("not JSON")); err != nil {
			t.Fatal(err)
		}
		d := device.NewTieredWith(device.TieredOptions{CommitPoint: commit, Logger: quiet}, device.NewMemory(), last)
		if err := errors.Join(d.Start(8), d.Close()); (err != nil) != refused {
			t.Errorf("commit point %d: %v", commit, err)
		}
	}
}

// After an orderly Close there is nothing to catch up with.
func TestNothingToCatchUp(t *testing.T) {
	first, last := device.NewMemory(), device.NewMemory()
	faulty := device.NewFaulty(last, device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: quiet}, first, faulty))
	b := newBench(t, d)
	b.write("aaaa", 0)
	floors := func() string {
		t.Helper()
		data, err := last.ReadMeta("tiered.floors")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if err := d.Sync(); err != nil || floors() != "[0,1]" {
		t.Fatalf("%v, floors %s", err, floors())
	}
	faulty.Release()
	if c := b.next(); c.Event != device.Released {
		t.Fatalf("%+v", c)
	}
	if err := errors.Join(b.q.Close(), d.Close()); err != nil || floors() != "[0,0]" {
		t.Errorf("%v, floors %s", err, floors())
	}
}
