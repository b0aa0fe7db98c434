// Package api is what both ends of the manager's control API share: the errors that
// calls fail with, which travel as error details, and the HTTP clients and servers
// that carry the calls. The messages are in internal/api.
package api

import "time"

// MaxIDLen bounds names in messages, in bytes.
const MaxIDLen = 128

// FromMillis converts a message's time; 0 is the zero Time.
func FromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// ToMillis is the opposite of FromMillis.
func ToMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
