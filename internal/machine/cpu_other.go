//go:build !linux

package machine

import "time"

// ProcessCPU is not known here.
func ProcessCPU() time.Duration { return 0 }

// ThreadCPU is not known here.
func ThreadCPU() time.Duration { return 0 }
