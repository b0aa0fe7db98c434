//go:build !race

package readcache

import "github.com/redykv/redykv/internal/mem"

// discard gives the physical memory behind b back. Readers may still be inside;
// they see zeros then.
func discard(b []byte) error { return mem.Discard(b) }
