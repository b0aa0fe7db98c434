package redytier

import "fmt"

// Losses returns how often memory of the regions with the length bytes at addr was lost, since
// these regions were added to the cache: the sum of [RegionInfo].Epoch, without a list of all
// regions. If it is the same before a write and after a read of the same bytes, the read
// returns what was written (A46).
func (c *Cache) Losses(addr, length int64) (uint64, error) {
	t := c.table.Load()
	if addr < 0 || length < 0 || addr > t.capacity-length {
		return 0, fmt.Errorf("%w: %d bytes at %d of %d", ErrOutOfRange, length, addr, t.capacity)
	}
	sum := uint64(0)
	if length > 0 {
		for i := addr >> t.shift; i <= (addr+length-1)>>t.shift; i++ {
			sum += t.regions.at(int(i)).epoch
		}
	}
	return sum, nil
}
