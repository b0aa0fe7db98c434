package index

import "unsafe"

// matchWords is the portable form of match.
func matchWords(bucket unsafe.Pointer, want uint64) int {
	for i := range BucketEntries {
		if uint64(placeIn(bucket, i).Load()>>AddressBits) == want {
			return i
		}
	}
	return BucketEntries
}
