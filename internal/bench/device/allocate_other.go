//go:build !linux

package device

import (
	"errors"
	"fmt"
)

// allocate is for fio's io_uring, which is Linux's.
func allocate(path string, _ int64) error {
	return fmt.Errorf("devicebench: space for %s: %w", path, errors.ErrUnsupported)
}
