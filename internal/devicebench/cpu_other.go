//go:build !linux

package devicebench

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
