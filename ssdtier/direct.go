package ssdtier

import (
	"errors"
	"fmt"
	"os"

	"github.com/redykv/redykv/device"
)

// maxBlock bounds what may be taken for a block size.
const maxBlock = 64 << 10

// leastBlock is the smallest unit of writes. Tests raise it.
var leastBlock = sumUnit

// probeName is the file that findBlock tries things on.
const probeName = "PROBE" + tempSuffix

// findBlock decides between direct and ordinary I/O, and with which unit.
func (d *Device) findBlock() error {
	d.block, d.sector = leastBlock, 1
	if d.opts.Buffered {
		return nil
	}
	block, err := probeBlock(d.path(probeName))
	if err != nil {
		return fmt.Errorf("ssdtier: %s is not writable: %w", d.dir, err)
	}
	if block == 0 {
		d.opts.Logger.Warn("no direct I/O here, the page cache serves reads", "dir", d.dir)
		return nil
	}
	d.direct, d.block, d.sector = true, max(block, leastBlock), block
	return nil
}

// directFlag is what segments are opened with.
func (d *Device) directFlag() int {
	if d.direct {
		return openDirect
	}
	return 0
}

// probeBlock returns the unit of direct I/O on files like path, which it makes
// and removes; 0 where there is none.
func probeBlock(path string) (int, error) {
	f, err := os.Create(path)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return 0, err
	}
	block := tryDirect(path)
	return block, os.Remove(path)
}

// tryDirect is probeBlock on a file that is there and can be written. Whatever
// it is refused only shows that the answer is no.
func tryDirect(path string) int {
	if openDirect == 0 {
		return 0
	}
	f, err := os.OpenFile(path, os.O_RDWR|openDirect, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	if block, known := askBlock(f); known {
		if block > maxBlock || block&(block-1) != 0 {
			return 0
		}
		return block
	}
	for block := 512; block <= maxBlock; block *= 2 {
		// At an offset of one block, so that a smaller unit than the disk's is
		// refused for its offset as well as for its length.
		buf := device.AlignedBuffer(block, block)
		_, werr := f.WriteAt(buf, int64(block))
		_, rerr := f.ReadAt(buf, int64(block))
		if errors.Join(werr, rerr) == nil {
			return block
		}
	}
	return 0
}
