package paper

import (
	"fmt"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/internal/units"
)

// Stock is the capacity of a machine, in bytes: in total, and free now. 0 means unknown, which
// is taken as enough.
type Stock struct {
	Memory, FreeMemory int64
	Disk, FreeDisk     int64 // file system for the files of stores
	Share, FreeShare   int64 // file system in memory for a file server's share
}

// StockOf returns this machine's stock, with the files of stores below dir. It first frees
// memory that killed runs left in shares.
func StockOf(dir string) (Stock, error) {
	smbd.Sweep()
	s := Stock{Memory: mem.Total(), FreeMemory: mem.Available()}
	var err error
	if s.Disk, s.FreeDisk, err = machine.DiskBytes(dir); err != nil {
		return Stock{}, err
	}
	if all, free, err := machine.DiskBytes(smbd.MemoryDir); err == nil { // otherwise shares are on disk
		s.Share, s.FreeShare = all, free
	}
	return s, nil
}

// need is the largest demand of a trial, in bytes. The share's bytes are included in memory.
type need struct{ memory, disk, share int64 }

// check returns an error if the machine lacks something. never reports that its total capacity
// is too small; otherwise only its free capacity is.
func (s Stock) check(n need) (never bool, err error) {
	for _, of := range []struct {
		what            string
		need, all, free int64
	}{
		{"of memory", n.memory, s.Memory, s.FreeMemory},
		{"on disk", n.disk, s.Disk, s.FreeDisk},
		{"in " + smbd.MemoryDir, n.share, s.Share, s.FreeShare},
	} {
		switch {
		case of.all > 0 && of.need > of.all:
			return true, fmt.Errorf("it takes %v %s, and this machine has %v", units.Size(of.need), of.what, units.Size(of.all))
		case of.all > 0 && of.need > of.free:
			return false, fmt.Errorf("it takes %v %s, of which %v are free now: make room, or choose a smaller scale",
				units.Size(of.need), of.what, units.Size(of.free))
		}
	}
	return false, nil
}
