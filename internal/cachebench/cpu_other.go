//go:build !linux

package cachebench

import "time"

// threadCPU is not known here.
func threadCPU() time.Duration { return 0 }
