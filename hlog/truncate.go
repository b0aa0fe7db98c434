package hlog

import "fmt"

// Truncate releases the device's space below an address, which is not above Begin. The block
// that contains the address is kept, because it may be written again. What a slow tier has not
// written yet is released by the next call.
func (l *Log) Truncate(below int64) error {
	below = min(l.Block(below), l.Block(l.released.load()))
	if err := l.dev.Truncate(below); err != nil {
		return fmt.Errorf("hlog: truncating to %d: %w", below, err)
	}
	return nil
}

// Block is the start of the device's block that contains an address.
func (l *Log) Block(addr int64) int64 { return addr &^ (l.alignment - 1) }
