//go:build !linux

package affinity

import "errors"

func allowedCPUs() ([]int, error) { return nil, errors.ErrUnsupported }

func currentCPU() int { return -1 }

func pin(...int) (func(), error) { return nil, errors.ErrUnsupported }
