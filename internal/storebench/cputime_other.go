//go:build !linux

package storebench

import "time"

// threadTime is the processor time that the calling thread has had, or 0 where
// that is not known.
func threadTime() time.Duration { return 0 }
