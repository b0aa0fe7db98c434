//go:build !linux

package affinity

import (
	"errors"
	"fmt"
)

func allowedCPUs() ([]int, error) { return nil, errors.ErrUnsupported }

func currentCPU() int { return -1 }

func pin(...int) (func(), error) { return nil, errors.ErrUnsupported }

// Confine restricts this process to some processors. Only Linux supports that.
func Confine([]int) (undo func() error, err error) {
	return nil, fmt.Errorf("affinity: %w", errors.ErrUnsupported)
}
