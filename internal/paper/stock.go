package paper

import (
	"fmt"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/smbd"
	"github.com/redykv/redykv/internal/units"
)

// Stock is what a machine has for trials, in bytes: all that there is, and what of it is
// free now. 0: not known, and taken for enough.
type Stock struct {
	Memory, FreeMemory int64
	Disk, FreeDisk     int64 // of the file system that the files of stores go to
	Share, FreeShare   int64 // of the file system in memory that a file server's share goes to
}

// StockOf is what this machine has, with the files of stores below dir, once memory that
// killed runs have left to shares is given back.
func StockOf(dir string) (Stock, error) {
	smbd.Sweep()
	s := Stock{Memory: mem.Total(), FreeMemory: mem.Available()}
	var err error
	if s.Disk, s.FreeDisk, err = machine.DiskBytes(dir); err != nil {
		return Stock{}, err
	}
	if all, free, err := machine.DiskBytes(smbd.MemoryDir); err == nil { // else shares are on disk
		s.Share, s.FreeShare = all, free
	}
	return s, nil
}

// need is what a trial takes at its largest, in bytes. What is in the share is in memory
// too.
type need struct{ memory, disk, share int64 }

// check says what a machine lacks. never: all of it would not do, else what is free now
// does not.
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
