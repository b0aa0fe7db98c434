//go:build !linux

package affinity

import (
	"errors"
	"fmt"
)

// Confine restricts this process to some processors. Only Linux supports that.
func Confine([]int) (undo func() error, err error) {
	return nil, fmt.Errorf("affinity: %w", errors.ErrUnsupported)
}
