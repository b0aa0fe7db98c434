//go:build !linux

package core

import "time"

// setUserTimeout does nothing: keep-alives alone detect a dead peer.
func setUserTimeout(int, time.Duration) error { return nil }
