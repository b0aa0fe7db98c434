package keycount

import (
	"math"
	"math/bits"
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

// TestBlocks compares blocks with a map of slices, and merges them as State does.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 50 {
		var c Counter
		model := make(map[int64]int64)
		reach := 1 << rng.IntN(53)
		for range 1000 {
			slice := c.past + 1 + rng.Int64N(int64(reach))
			switch rng.IntN(8) {
			case 0:
				want := int64(0)
				past := c.past + 1 + rng.Int64N(int64(reach)/64+1)
				for slice, n := range model {
					if slice <= past {
						want += n
						delete(model, slice)
					}
				}
				if got := c.ends.take(past); got != want {
					t.Fatalf("%d keys up to slice %d, want %d", got, past, want)
				}
				c.past = past
			case 1, 2, 3:
				for slice = range model { // any
					break
				}
				fallthrough
			default:
				n := rng.Int64N(7) - 3
				c.ends.add(slice, n)
				model[slice] += n
			}
			if got := c.ends.at(slice); got != model[slice] {
				t.Fatalf("%d keys in slice %d, want %d", got, slice, model[slice])
			}
		}
		got, want := make(map[int64]int64), make(map[int64]int64)
		for slice, n := range model {
			want[c.mergedSlice(slice)] += n
		}
		last := int64(0)
		c.ends.merge(c.mergedSlice, func(merged, n int64) {
			if merged < last {
				t.Fatalf("slice %d after %d", merged, last)
			}
			last = merged
			got[merged] += n
		})
		for slice, n := range want {
			if got[slice] != n {
				t.Fatalf("%d keys in the merged slice %d, want %d", got[slice], slice, n)
			}
		}
		for slice, n := range model {
			c.ends.add(slice, -n)
		}
		if !c.ends.empty() {
			t.Fatalf("not empty: %+v", c.ends)
		}
	}
}

// TestStateSteps counts the slices that State looks at: a few for each doubling of the time,
// however many slices have keys, and wherever they are.
func TestStateSteps(t *testing.T) {
	for _, d := range []struct {
		name string
		keys int
		at   func(i int, rng *rand.Rand) int64 // milliseconds from now
	}{
		{"12 days", 1 << 20, func(i int, _ *rand.Rand) int64 { return int64(i) << SliceBits }},
		{"a century", 1 << 16, func(_ int, rng *rand.Rand) int64 { return rng.Int64N(100 * 365 * 24 * 3600 * 1000) }},
		{"all time", 1 << 16, func(_ int, rng *rand.Rand) int64 { return rng.Int64N(1 << 62) }},
		{"all time by its logarithm", 1 << 16, func(_ int, rng *rand.Rand) int64 { return rng.Int64N(1 << rng.IntN(63)) }},
	} {
		rng := rand.New(rand.NewPCG(9, 10))
		c, now, far := New(), int64(1<<40), int64(0)
		for i := range d.keys {
			after := 1 + d.at(i, rng)
			far = max(far, after)
			c.Add(now + after)
		}
		c.Expired(now)
		steps := 0
		c.ends.merge(func(slice int64) int64 {
			steps++
			return c.mergedSlice(slice)
		}, func(_, _ int64) {})
		doublings := bits.Len64(uint64(far) >> SliceBits)
		if most := 16 * nearSlices * doublings; steps > most {
			t.Errorf("%s: %d steps for %d keys, want at most %d", d.name, steps, d.keys, most)
		}
		if k := c.State(int64(d.keys), now); len(k.Ends) > 2*nearSlices*doublings {
			t.Errorf("%s: %d numbers", d.name, len(k.Ends))
		}
		t.Logf("%s: %d steps", d.name, steps)
	}
}

func BenchmarkState(b *testing.B) {
	b.Run("month", func(b *testing.B) {
		c, now := monthOfKeys()
		for b.Loop() {
			c.State(1<<22, now)
		}
	})
	b.Run("anytime", func(b *testing.B) { // a million keys that expire anywhere
		rng := rand.New(rand.NewPCG(1, 2))
		c, now := New(), int64(1<<40)
		for range 1 << 20 {
			c.Add(now + 1 + rng.Int64N(1<<62))
		}
		for b.Loop() {
			c.State(1<<20, now)
		}
	})
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

// 2.6 million slices, of 30 days, have keys.
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
