package keycount

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// TestExpired counts keys whose times pass, and compares with a list of them.
func TestExpired(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c, now := New(), int64(1<<40)
	var ends []int64
	for range 200 {
		for range rng.IntN(20) {
			end := now + 1 + rng.Int64N(1<<20)
			ends = append(ends, end)
			c.Add(end)
		}
		for range min(rng.IntN(5), len(ends)) { // changed to never expire, before it does
			i := rng.IntN(len(ends))
			if ends[i] > now {
				c.Remove(ends[i])
				ends[i] = ends[len(ends)-1]
				ends = ends[:len(ends)-1]
			}
		}
		now += rng.Int64N(1 << 15)
		gone, timed := c.Expired(now)
		sure, possible := int64(0), int64(0) // all slices that are past, and with the present one
		for _, end := range ends {
			if end <= now-1<<SliceBits {
				sure++
			}
			if end <= now {
				possible++
			}
		}
		if gone < sure || gone > possible || gone+timed != int64(len(ends)) {
			t.Fatalf("%d have expired of %d to %d, %d will of %d", gone, sure, possible, timed, len(ends))
		}
	}
	c.Clear()
	if gone, timed := c.Expired(now); gone != 0 || timed != 0 {
		t.Errorf("after Clear %d and %d", gone, timed)
	}
}

// TestState restores a counter: the sums are the same, and a key that was to expire expires
// at most a thirty-second of its time later.
func TestState(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		c, now := New(), int64(1<<40)
		const keys = 1000
		var last int64
		for range keys {
			end := now + 1 + rng.Int64N(1<<rng.IntN(40))
			last = max(last, end)
			c.Add(end)
		}
		k := c.State(keys, now)
		if k.Keys != keys {
			t.Fatalf("%d keys of %d", k.Keys, keys)
		}
		restored := New()
		restored.Restore(k)
		for at := now; ; at += (at-now)/2 + 1<<SliceBits {
			late := at + (at-now)/(nearSlices/2) + 2<<SliceBits
			was, _ := c.Expired(at)
			is, timed := restored.Expired(late)
			if is < was || is+timed != keys {
				t.Fatalf("%d ms later %d have expired, %d will; of the counter before %d", late-now, is, timed, was)
			}
			if at > last {
				break
			}
		}
		if len(k.Ends) > 2*nearSlices*40 {
			t.Errorf("%d numbers", len(k.Ends))
		}
	}
}

// Far expiries, of which one is as far as there can be, take no longer.
func TestFar(t *testing.T) {
	c, now := New(), int64(1<<40)
	c.Add(math.MaxInt64)
	c.Add(math.MaxInt64)
	c.Remove(math.MaxInt64)
	c.Add(now + 1)
	k := c.State(2, now)
	count := &manifest.KeyCount{ClassCount: k, Classified: true, Others: map[uint8]manifest.ClassCount{7: k}}
	m := &manifest.Manifest{PageSize: hlog.MinPageSize, Commit: manifest.State{Begin: hlog.FirstAddress, Tail: hlog.FirstAddress, Count: count}}
	data, err := m.Encode()
	if err == nil {
		_, err = manifest.Parse(data)
	}
	if err != nil {
		t.Errorf("a manifest with %+v: %v", k, err)
	}
	if len(k.Ends) != 4 || k.Ends[1] != 1 || k.Ends[3] != 1 || k.Keys != 2 {
		t.Errorf("state %+v", k)
	}
	if gone, timed := c.Expired(math.MaxInt64); gone != 1 || timed != 1 {
		t.Errorf("in the last slice %d keys have expired and %d will, want 1 and 1", gone, timed)
	}
}

// 2.6 million slices, of 30 days, have keys.
func BenchmarkState(b *testing.B) {
	c, now := monthOfKeys()
	for b.Loop() {
		c.State(1<<22, now)
	}
}

// A second passes, and a key with an expiry is written over.
func BenchmarkExpired(b *testing.B) {
	c, now := monthOfKeys()
	for b.Loop() {
		now += 1 << SliceBits
		c.Remove(now + 1<<20)
		c.Add(now + 1<<30)
		c.Expired(now)
	}
}

func monthOfKeys() (c *Counter, now int64) {
	c, now = New(), 1<<40
	for i := range int64(30 * 24 * 3600) {
		for range 4 {
			c.Add(now + i*1000)
		}
	}
	return c, now
}

// TestRemoveRestored removes keys that were counted before a restart, beside others of the same
// expiries that were counted after it. None is counted at any time from then on, and the others as
// long as they live.
func TestRemoveRestored(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, removed := range []int{100, 200} { // some of the restored ones, and all
		before, now := New(), int64(1<<40)
		var ends []int64
		for range 200 {
			end := now + 1 + rng.Int64N(1<<31)
			ends = append(ends, end)
			before.Add(end)
		}
		c := New()
		c.Restore(before.State(200, now))
		for _, end := range ends[:removed] {
			c.Add(end)
		}
		for _, end := range ends[:removed] {
			c.Remove(end)
			c.Remove(end)
		}
		left := int64(200 - removed)
		for at := now; at < now+1<<32; at += 1 << 23 {
			gone, timed := c.Expired(at)
			if gone < 0 || timed < 0 || gone+timed != left {
				t.Fatalf("%d ms later %d have expired and %d will, of %d", at-now, gone, timed, left)
			}
		}
	}
}
