//go:build !linux

package ssdtier

import "os"

// openDirect is the flag that makes a file bypass the page cache, or 0.
const openDirect = 0

// askBlock is not called on systems without direct I/O.
func askBlock(*os.File) (block int, known bool) { return 0, true }
