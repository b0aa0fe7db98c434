//go:build !linux

package machine

import "time"

// ProcessCPU returns 0: the time is not known on this system.
func ProcessCPU() time.Duration { return 0 }

// ThreadCPU returns 0: the time is not known on this system.
func ThreadCPU() time.Duration { return 0 }
