package ycsb

import (
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/units"
)

// TestComparisonThatDoesNotFit checks comparisons of 40 million records of 100 bytes, a log of
// 4.5 GiB, against 1.4 GiB of memory. With a store on the SSD the process had up to 1338 MiB,
// and 60 MiB of its program.
func TestComparisonThatDoesNotFit(t *testing.T) {
	const records, value, have = 40_000_000, 100, 14 << 30 / 10
	sixth := DefaultMemory(LogBytes(records, value))
	for _, tc := range []struct {
		devices []Device
		memory  int64
		change  func(*Comparison)
		taken   int64  // by others
		want    string // in the error; "": it fits
	}{
		{[]Device{SSD}, sixth, nil, 0, "process 33.5MiB"},
		{[]Device{SSD}, 720 << 20, nil, 0, ""},
		{[]Device{SSD}, 720 << 20, nil, 100 << 20, "of which 1.3GiB are available"},
		{[]Device{SSD}, 1 << 30, nil, 0, "local memory 1GiB"},
		{[]Device{SSD}, sixth, func(c *Comparison) { c.ReadCaches = []float64{0, 0.5} }, 0, "ssd+0.5 (local memory"},
		{[]Device{SSD}, 64 << 20, func(c *Comparison) { c.ReadCaches = []float64{0, 0.5} }, 0, ""},
		{[]Device{SSD}, sixth, func(c *Comparison) { c.Threads = []int{1, 256} }, 0, "process 160.5MiB"}, // histograms
		{[]Device{SSD}, sixth, func(c *Comparison) { c.Depth = MaxDepth }, 0, "readers 65"},
		{[]Device{SSD}, 700 << 20, func(c *Comparison) { c.ValueSize, c.Records, c.ReadCaches = 32<<10, 1e5, []float64{0.99} }, 0, "garbage of the read cache 693MiB"},
		{[]Device{Redy, SSD}, sixth, nil, 0, "remote memory"},
		{[]Device{Memory}, 64 << 20, nil, 0, "log 4."},
		{[]Device{SMB}, 64 << 20, nil, 0, "share in memory"},
		{[]Device{"pebble"}, sixth, nil, 0, "memtables and compactions 32MiB"},
		{[]Device{"badger"}, sixth, nil, 0, "badger (caches 1.26GiB"},
		{[]Device{"bbolt"}, sixth, func(c *Comparison) { c.Threads, c.Depth = []int{16}, MaxDepth }, 0, "readers 1"}, // goroutines
		{[]Device{SSD, "bbolt"}, sixth, nil, 0, "bbolt (caches"},
		{[]Device{"pebble"}, 256 << 20, nil, 0, ""},
	} {
		c := Comparison{
			Shape:   Shape{Records: records, ValueSize: value, Memory: tc.memory, Cache: 8 * tc.memory, Depth: DefaultDepth},
			Devices: tc.devices, Threads: []int{1, 2},
		}
		if tc.change != nil {
			tc.change(&c)
		}
		err := c.fits(have, have-tc.taken)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%v with %v: %v", tc.devices, units.Size(tc.memory), err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), units.Size(have).String())):
			t.Errorf("%v with %v: %v, want %q in it", tc.devices, units.Size(tc.memory), err, tc.want)
		}
		c.Threads, c.Depth = []int{MaxThreads}, MaxDepth
		if err := c.fits(have, have); err == nil {
			t.Errorf("%v: %d readers with %d reads each fit into %v", tc.devices, MaxThreads, MaxDepth, units.Size(have))
		}
	}
}

// TestPeerBatch checks that a batch of large values is not larger than one of small ones.
func TestPeerBatch(t *testing.T) {
	for size, want := range map[int]int64{8: 1 << 14, 1016: 1024, MaxValueSize: 1} {
		if got := (Shape{ValueSize: size}).peerBatch(); got != want {
			t.Errorf("%d values of %d bytes, want %d", got, size, want)
		}
	}
}

func TestLogBytes(t *testing.T) {
	for _, tc := range []struct {
		records int64
		size    int
		want    int64
	}{{1, 8, 24}, {10_000_000, 8, 240_000_000}, {1, 1, 24}, {1, 9, 32}, {3, 1024, 3 * 1040}} {
		if got := LogBytes(tc.records, tc.size); got != tc.want {
			t.Errorf("LogBytes(%d, %d) = %d, want %d", tc.records, tc.size, got, tc.want)
		}
	}
}
