//go:build !linux

package mem

// Total is the memory that this process may have, in bytes, or 0 where it is not
// known.
func Total() int64 { return 0 }

// Resident is the physical memory of this process in bytes, or 0 where it is not
// known.
func Resident() int64 { return 0 }

// Private is the physical memory of this process that it shares with no other, in
// bytes, or 0 where it is not known.
func Private() int64 { return 0 }

// Available is how much memory can be had without pressing others for theirs, in
// bytes, or 0 where it is not known.
func Available() int64 { return 0 }
