package ssdtier

import (
	"errors"
	"fmt"
	"os"

	"github.com/redykv/redykv/device"
)

// maxBlock is the largest block size that is accepted.
const maxBlock = 64 << 10

// leastBlock is the smallest unit of writes. Tests raise it.
var leastBlock = sumUnit

// probeName is the file that findBlock uses for its attempts.
const probeName = "PROBE" + tempSuffix

// findBlock chooses direct or ordinary I/O, and the unit.
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
		d.opts.Logger.Warn("direct I/O is not possible, the page cache is used", "dir", d.dir)
		return nil
	}
	d.directFlag, d.block, d.sector = openDirect, max(block, leastBlock), block
	return nil
}

// probeBlock returns the unit of direct I/O on files like path, which it creates and removes; 0
// if direct I/O is not possible.
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

// tryDirect is probeBlock on an existing file. An error only means that direct I/O is not
// possible.
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
		// At an offset of one block, so that a unit smaller than the disk's fails for
		// its offset as well as for its length.
		buf := device.AlignedBuffer(block, block)
		_, werr := f.WriteAt(buf, int64(block))
		_, rerr := f.ReadAt(buf, int64(block))
		if errors.Join(werr, rerr) == nil {
			return block
		}
	}
	return 0
}
