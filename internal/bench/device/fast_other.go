//go:build !linux

package device

// mayPin says whether this process, and so fio, may pin that many bytes of buffers.
func mayPin(int) bool { return false }

// hugePages returns how fio's buffers get huge pages: not at all on this system.
func hugePages(int) *pages { return &pages{way: smallPages} }

// unreserved returns how fio's buffers get pages that nobody can take from it.
func unreserved() *pages { return &pages{way: smallPages} }
