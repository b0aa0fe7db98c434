package ssdtier

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// TestJournalOfSmallerBlocks: a crashed directory whose journal has smaller blocks than the disk
// where it is opened.
func TestJournalOfSmallerBlocks(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize})
	content := fill(t, d, 3*sumUnit)
	if err := d.Commit("m", nil); err != nil {
		t.Fatal(err)
	}
	last := padded(d, "the end")
	if err := writeBlocks(t, d, last, 3*sumUnit); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit("m", []byte{1}); err != nil {
		t.Fatal(err)
	}
	c := crashed{t: t, d: d}
	c.disk = c.files()
	dir := c.copyTorn(rand.New(rand.NewPCG(1, 1)))
	defer func() { leastBlock = sumUnit }()
	leastBlock = 16 << 10
	again := mustOpen(t, dir, Options{})
	if err := again.Start(4 * sumUnit); err != nil {
		t.Fatal(err)
	}
	testrun.Bytes(readAll(t, again, 0, 4*sumUnit)).Want(t, append(content, last...), "read")
}

// TestLargeBlocks: a disk with blocks of more than 4 KiB passes the same tests.
func TestLargeBlocks(t *testing.T) { overEngines(t, testLargeBlocks) }

func testLargeBlocks(t *testing.T) {
	defer func() { leastBlock = sumUnit }()
	for _, leastBlock = range []int{16 << 10, 64 << 10} {
		for _, verify := range Verifies {
			t.Run(fmt.Sprintf("%d/%s", leastBlock, verify), func(t *testing.T) {
				opts := Options{SegmentSize: 2 * minSegmentSize, Verify: verify}
				devicetest.Run(t, func(t *testing.T) device.Device {
					d := mustOpen(t, t.TempDir(), opts)
					if d.Alignment() != leastBlock {
						t.Errorf("alignment %d", d.Alignment())
					}
					return d
				}, devicetest.Reopen(func(t *testing.T, old device.Device) device.Device {
					return mustOpen(t, old.(*Device).Dir(), opts)
				}))
			})
		}
	}
}
