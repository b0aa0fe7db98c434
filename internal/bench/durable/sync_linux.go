package durable

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncData calls fdatasync.
func syncData(f *os.File) error {
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("fdatasync %s: %w", f.Name(), err)
	}
	return nil
}
