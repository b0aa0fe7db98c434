package mem

import "unsafe"

// The copies in copy_plain.go and copy_race.go are for algorithms that check afterwards
// whether a copy is consistent, such as sequence locks, or rings whose head may have moved.
//
// Such a copy is a deliberate race. Under the race detector it is made word by word with
// atomics, so that the detector does not report it and still checks all other accesses. Memory
// is aligned to 8 bytes; a tail shorter than a word owns the whole word.

// sameStart reports whether value is empty or begins at the same address as given, so that it
// ends within given's capacity.
func sameStart(value, given []byte) bool {
	return len(value) == 0 || unsafe.SliceData(value) == unsafe.SliceData(given)
}
