package ssdtier

import (
	"fmt"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
)

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
