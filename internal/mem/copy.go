package mem

import "unsafe"

// The copies in copy_plain.go and copy_race.go are for algorithms that find out
// afterwards whether a copy is whole: sequence locks, rings whose head may have passed.
//
// Such a copy is a deliberate race. Under the race detector it is made word by word with
// atomics, so that the detector does not report it and still checks everything else.
// Memory is aligned to 8 bytes; a tail that does not fill its word owns the whole word.

// sameStart reports whether value is empty or starts where given does, and so ends within
// given's capacity too.
func sameStart(value, given []byte) bool {
	return len(value) == 0 || unsafe.SliceData(value) == unsafe.SliceData(given)
}
