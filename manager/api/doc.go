// Package api has what clients and servers of the manager's control API share: the errors
// of calls, which are sent as error details, and HTTP clients and servers. The messages are
// in internal/api.
package api

import "time"

// MaxIDLen bounds names in messages, in bytes.
const MaxIDLen = 128

// FromMillis converts a message's time; 0 becomes the zero Time.
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
