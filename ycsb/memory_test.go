package ycsb

import (
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/units"
)

// TestComparisonThatDoesNotFit checks comparisons of 40 million records of 100 bytes, a log of
// 4.5 GiB, against 1.4 GiB of memory.
func TestComparisonThatDoesNotFit(t *testing.T) {
	const records, value, have = 40_000_000, 100, 14 << 30 / 10
	for _, tc := range []struct {
		devices []Device
		memory  int64
		want    string // in the error; "": it fits
	}{
		{[]Device{SSD}, DefaultMemory(LogBytes(records, value)), ""}, // 1333 MiB, as measured
		{[]Device{SSD}, 1 << 30, "local memory 1GiB"},
		{[]Device{Redy, SSD}, DefaultMemory(LogBytes(records, value)), "remote memory"},
		{[]Device{Memory}, 64 << 20, "log 4."},
		{[]Device{SMB}, 64 << 20, "share in memory"},
		{[]Device{"pebble"}, DefaultMemory(LogBytes(records, value)), "memtables 576MiB"},
		{[]Device{"badger"}, DefaultMemory(LogBytes(records, value)), "tables' indexes"},
		{[]Device{SSD, "bbolt"}, DefaultMemory(LogBytes(records, value)), "bbolt (cache"},
	} {
		c := Comparison{
			Shape:   Shape{Records: records, ValueSize: value, Memory: tc.memory, Cache: 8 * tc.memory, Depth: DefaultDepth},
			Devices: tc.devices, Threads: []int{1, 2},
		}
		err := c.fits(have)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%v with %v: %v", tc.devices, units.Size(tc.memory), err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), units.Size(have).String())):
			t.Errorf("%v with %v: %v, want %q in it", tc.devices, units.Size(tc.memory), err, tc.want)
		}
		c.Threads, c.Depth = []int{MaxThreads}, MaxDepth
		if err := c.fits(have); err == nil {
			t.Errorf("%v: %d readers with %d reads each fit into %v", tc.devices, MaxThreads, MaxDepth, units.Size(have))
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
