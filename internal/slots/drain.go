package slots

import (
	"context"

	"github.com/redykv/redykv/device"
)

// Drain polls a queue, which is going to be closed, until nothing is under way on it any
// more: until used says 0.
func Drain(q device.Queue, used func() int) error {
	var done [16]device.Completion
	for used() > 0 {
		if err := q.Wait(context.Background()); err != nil {
			return err
		}
		q.Poll(done[:])
	}
	return nil
}
