//go:build !race

package words

// CopyBytesIn copies src to dst, the same number of bytes, which others may write or
// read meanwhile: what they see of it is any mixture of old and new.
func CopyBytesIn(dst, src []byte) { copy(dst, src) }

// CopyBytesOut copies src, which others may write meanwhile, to dst, the same number
// of bytes.
func CopyBytesOut(dst, src []byte) { copy(dst, src) }
