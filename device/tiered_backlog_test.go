package device_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// writeAll writes until the last event, and returns its error.
func (b *bench) writeAll(s string, addr int64) error {
	b.t.Helper()
	c := b.write(s, addr)
	if c.Event == device.Committed {
		c = b.next()
	}
	return c.Err
}

// A slow tier delays no write up to its backlog; beyond that, writes wait for it.
func TestBacklogWait(t *testing.T) {
	for _, slow := range []int{1, 2} {
		tiers := []device.Device{volatile(), volatile(), device.NewMemory()}
		stuck := device.NewFaulty(tiers[slow], device.FaultyOptions{Stuck: 1})
		tiers[slow] = stuck
		d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Backlog: 12, Logger: quiet}, tiers...)).(*device.Tiered)
		b := newBench(t, d)
		for i := range 3 {
			if c := b.write("aaaa", int64(4*i)); c.Event != device.Committed || c.Err != nil {
				t.Fatalf("write %d: %+v", i, c)
			}
		}
		if m := d.Metrics()[slow]; m.Backlog != 12 || !m.Healthy {
			t.Errorf("%+v", m)
		}
		if err := b.q.Write([]byte("aaaa"), 12, 1); !errors.Is(err, device.ErrQueueFull) {
			t.Fatalf("beyond the limit: %v", err)
		}
		b.wantRead("aaaa", 8, 0)
		stuck.Set(device.FaultyOptions{})
		stuck.Release()
		for range 3 {
			if c := b.next(); c.Event != device.Released || c.Err != nil {
				t.Errorf("%+v", c)
			}
		}
		// A single write proceeds even if it is larger than the backlog.
		if err := b.writeAll(strings.Repeat("b", 100), 12); err != nil {
			t.Error(err)
		}
		if m := d.Metrics()[slow]; m.Backlog != 0 || m.BytesWritten != 112 {
			t.Errorf("%+v", m)
		}
	}
}

// A dropped tier returns to the set and is refilled.
func TestBacklogDrop(t *testing.T) {
	slow := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	events := make(chan string, 8)
	d := started(t, device.NewTieredWith(device.TieredOptions{
		Names: []string{"first", "slow", "last"}, CommitPoint: 1, RetryAfter: 1, Backlog: 12, BacklogPolicy: device.BacklogDrop,
		Logger: quiet, OnEvent: func(e device.TierEvent) { events <- e.String() },
	}, device.NewNull(), slow, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	want := func(tier uint8, pages ...string) {
		t.Helper()
		for i, page := range pages {
			b.wantRead(page, int64(4*i), tier)
		}
	}
	for i, page := range []string{"aaaa", "bbbb", "cccc"} {
		if err := b.writeAll(page, int64(4*i)); err != nil {
			t.Fatal(err)
		}
	}
	// The dropped tier may hold the pending writes, but must not answer for them.
	want(2, "aaaa", "bbbb", "cccc")
	if m := d.Metrics()[1]; m.Backlog != 12 || !m.Healthy {
		t.Errorf("%+v", m)
	}
	if err := b.writeAll("dddd", 12); err != nil {
		t.Fatal(err)
	}
	if m := d.Metrics()[1]; m.Healthy || !errors.Is(m.Reason, device.ErrBehind) {
		t.Errorf("the tier that is too slow: %+v", m)
	}
	want(2, "aaaa", "bbbb", "cccc", "dddd")

	slow.Set(device.FaultyOptions{})
	slow.Release()
	testrun.Until(t, "the backlog is written", func() bool { b.q.Poll(make([]device.Completion, 1)); return d.Metrics()[1].Backlog == 0 })
	if err := b.writeAll("eeee", 16); err != nil { // starts the tier, without this write
		t.Fatal(err)
	}
	for _, want := range []string{
		"tier 1, slow, failed: device: tier is too far behind: 12 bytes are pending", "tier 1, slow, is back from 20 on",
	} {
		if got := testrun.Receive(t, want, events); got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	if err := b.writeAll("ffff", 20); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the slow tier is refilled", func() bool {
		b.q.Poll(make([]device.Completion, 1))
		m := d.Metrics()[1]
		return m.Missing == 0 && m.Backlog == 0 && m.Healthy && m.Refilled >= 20 // Refilled is counted last
	})
	want(1, "aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff")
	if m := d.Metrics()[1]; m.Restarts != 1 || m.Refilled != 20 || m.Begin != 0 {
		t.Errorf("%+v", m)
	}
}

// Without a limit in bytes a tier is dropped when it lacks as many writes as the queue is deep.
func TestBacklogOfWrites(t *testing.T) {
	stuck := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	d := started(t, device.NewTieredWith(device.TieredOptions{
		CommitPoint: 1, RetryAfter: time.Hour, Backlog: -1, BacklogPolicy: device.BacklogDrop, Logger: quiet,
	}, device.NewNull(), stuck, device.NewMemory())).(*device.Tiered)
	t.Cleanup(stuck.Release)
	b := newBench(t, d)
	const depth = 16 // of newBench
	for n := range int64(depth + 1) {
		if m := d.Metrics()[1]; !m.Healthy {
			t.Fatalf("after %d writes: %+v", n, m)
		}
		if err := b.writeAll("abcd", 4*n); err != nil {
			t.Fatal(err)
		}
	}
	if m := d.Metrics()[1]; m.Healthy || !errors.Is(m.Reason, device.ErrBehind) || m.Backlog != 4*depth {
		t.Errorf("after %d writes: %+v", depth+1, m)
	}
}

// Copies of rewrites of one block reach a tier in order, even if the tier reorders operations.
func TestBacklogKeepsOrder(t *testing.T) {
	d := started(t, device.NewTieredWith(device.TieredOptions{CommitPoint: 1, BacklogPolicy: device.BacklogDrop, Logger: quiet},
		device.NewNull(), lazy{device.NewMemory()}, device.NewMemory())).(*device.Tiered)
	b := newBench(t, d)
	done := make([]device.Completion, 16)
	for _, block := range []string{"a000", "ab00", "abc0", "abcd"} {
		if err := b.q.Write([]byte(block), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.q.Write([]byte("efgh"), 4, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.q.Submit(); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the backlog is written", func() bool { b.q.Poll(done); return d.Metrics()[1].Backlog == 0 })
	b.wantRead("abcdefgh", 0, 1)
}
