package index

import "math/bits"

// A position is a place in an order of all hashes that does not depend on the size of the
// index: the low bits of the hash reversed, as a fraction of Positions. A bucket covers an
// interval. The two buckets into which a bucket is split when the index grows cover its
// two halves, so that a scan goes on in an index of another size.
const (
	// PositionBits is the binary logarithm of Positions, and of the largest table.
	PositionBits = 36
	// Positions is the number of positions.
	Positions = uint64(1) << PositionBits
)

// BucketAt returns the bucket that covers a position, in a table of 1<<tableBits buckets,
// and the position behind its interval.
func BucketAt(position uint64, tableBits int) (bucket, behind uint64) {
	step := Positions >> tableBits
	position &^= step - 1
	return bits.Reverse64(position << (64 - PositionBits)), position + step
}
