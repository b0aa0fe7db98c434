//go:build !linux

package mem

// Total returns the memory in bytes that this process may use, or 0 if unknown.
func Total() int64 { return 0 }

// Resident returns the physical memory of this process in bytes, or 0 if unknown.
func Resident() int64 { return 0 }

// Private returns the physical memory in bytes that only this process uses, or 0 if unknown.
func Private() int64 { return 0 }

// Available returns the memory in bytes that can be allocated without swapping, or 0 if
// unknown.
func Available() int64 { return 0 }
