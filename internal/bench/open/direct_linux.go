package open

import (
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens a file to be read past the page cache.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
}
