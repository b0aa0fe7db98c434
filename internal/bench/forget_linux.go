package bench

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ForgetPages removes a file, which is on the disk, from the page cache.
func ForgetPages(f *os.File) error {
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("page cache of %s: %w", f.Name(), err)
	}
	return nil
}
