//go:build !linux

package bench

import (
	"errors"
	"fmt"
	"os"
)

// ForgetPages fails: the system call is Linux's.
func ForgetPages(f *os.File) error {
	return fmt.Errorf("page cache of %s: %w", f.Name(), errors.ErrUnsupported)
}
