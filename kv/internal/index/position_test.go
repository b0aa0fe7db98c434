package index

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// TestBucketAt goes from bucket to bucket as scans do, in tables of all sizes, and in one
// that changes its size on the way: each bucket of the largest one is passed, and once if
// the table does not shrink.
func TestBucketAt(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		smallest := rapid.IntRange(0, 8).Draw(t, "smallest")
		size, largest := smallest, 0
		shrinks := rapid.Bool().Draw(t, "shrinks")
		passed := map[uint64]int{} // buckets of a table of 1<<12
		for at := uint64(0); at < Positions; {
			if rapid.IntRange(0, 9).Draw(t, "grows") == 0 && size < 12 {
				size++
			} else if shrinks && rapid.IntRange(0, 30).Draw(t, "clears") == 0 {
				size = smallest
			}
			largest = max(largest, size)
			bucket, behind := BucketAt(at, size)
			if bucket >= 1<<size || behind <= at {
				t.Fatalf("bucket %d of 1<<%d at %d, and then %d", bucket, size, at, behind)
			}
			for n := bucket; n < 1<<12; n += 1 << size {
				passed[n]++
			}
			at = behind
		}
		for n := range uint64(1 << 12) {
			if passed[n] == 0 || passed[n] > 1 && !shrinks {
				t.Fatalf("bucket %d is passed %d times", n, passed[n])
			}
		}
	})
}
