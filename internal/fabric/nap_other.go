//go:build !linux

package fabric

import "time"

// nap sleeps for at least ns nanoseconds.
func nap(ns int64) { time.Sleep(time.Duration(ns)) }
