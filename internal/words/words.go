// Package words moves bytes between private memory and memory that others write
// at the same time, for algorithms that find out afterwards whether the copy is
// whole: sequence locks, rings whose head has passed.
//
// Such a copy is a race on purpose. Under the race detector it is made word by
// word with atomics, so that it is none for the detector, which then checks all
// the rest. Memory is aligned to 8 bytes; a tail that does not fill its word
// owns the whole word.
package words

import "unsafe"

// sameStart says whether value is empty or starts where given does, and so ends
// within its capacity too.
func sameStart(value, given []byte) bool {
	return len(value) == 0 || unsafe.SliceData(value) == unsafe.SliceData(given)
}
