//go:build !linux

package fabric

import "time"

// nap sleeps for so many nanoseconds, or as much longer as the system likes.
func nap(ns int64) { time.Sleep(time.Duration(ns)) }
