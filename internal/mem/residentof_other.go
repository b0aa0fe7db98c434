//go:build !linux || race

package mem

// ResidentOf is how many bytes of physical memory are behind b, which came from
// Alloc; -1 where it is not known.
func ResidentOf([]byte) (int64, error) { return -1, nil }
