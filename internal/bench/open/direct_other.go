//go:build !linux

package open

import "os"

// openDirect opens a file to be read. Only on Linux is it read past the page cache.
func openDirect(path string) (*os.File, error) { return os.Open(path) }
