package cache

import (
	"fmt"
	"syscall"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// checkMemory returns an error if this machine may not have the memory for the region that moves,
// which two servers hold for a while.
func checkMemory(s *SparseSpec) error {
	if free := mem.Available(); free > 0 && 2*s.RegionSize > free {
		return fmt.Errorf("two regions of %v that are written need more memory than the %v that are free: measure smaller regions", units.Size(s.RegionSize), units.Size(free))
	}
	return nil
}

// checkFiles returns an error if this process may not have enough descriptors open for the
// servers of a spec. The runtime raises the soft limit to the hard one when the program starts.
func checkFiles(s *SparseSpec) error {
	const (
		each  = 6 // of a server: listeners, its manager, and what a transport needs
		slack = 64
	)
	// A session, and the client threads together, have at least one connection to a server.
	need := uint64(s.Servers*(each+s.Sessions+1) + s.Regions() + slack)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if limit.Cur < need {
		return fmt.Errorf("%d servers and %d sessions need %d open files, %d are allowed: raise ulimit -Hn, or measure fewer servers", s.Servers, s.Sessions, need, limit.Cur)
	}
	return nil
}
