//go:build !race

package readcache

import "github.com/redykv/redykv/internal/mem"

// discard releases the physical memory of b. Concurrent readers then see zeros.
func discard(b []byte) error { return mem.Discard(b) }
