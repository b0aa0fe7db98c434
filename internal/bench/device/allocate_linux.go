package device

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// allocate creates a file of a size with allocated space, none of it written.
func allocate(path string, size int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("devicebench: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return fmt.Errorf("devicebench: space for %s: %w", path, err)
	}
	return nil
}
