package hlog

import "fmt"

// Truncate gives the device's space below Begin back. What a slow tier has not
// written yet stays, until the next call.
func (l *Log) Truncate() error {
	begin := min(l.begin.load(), l.released.load())
	if err := l.dev.Truncate(begin); err != nil {
		return fmt.Errorf("hlog: truncating to %d: %w", begin, err)
	}
	return nil
}
