package hlog

import "fmt"

// Truncate gives the device's space below an address back, which is not above
// Begin. What a slow tier has not written yet stays, until the next call.
func (l *Log) Truncate(below int64) error {
	below = min(below, l.released.load())
	if err := l.dev.Truncate(below); err != nil {
		return fmt.Errorf("hlog: truncating to %d: %w", below, err)
	}
	return nil
}
