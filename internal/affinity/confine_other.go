//go:build !linux

package affinity

import (
	"errors"
	"fmt"
)

// Confine keeps this process to some processors. Only Linux can.
func Confine([]int) (undo func() error, err error) {
	return nil, fmt.Errorf("affinity: %w", errors.ErrUnsupported)
}
