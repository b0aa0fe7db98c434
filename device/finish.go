package device

import "context"

// Finish carries out the operation that was just enqueued on a queue of the caller's, as
// the only pending one. err is the result of enqueuing it:
//
//	err := device.Finish(ctx, q, q.Read(dst, addr, 0))
//
// Finish submits, and waits for the operation's last event: of a write, until every tier
// has ended it. It returns the operation's error, or that of Submit or Wait, which may be
// ctx's. After one of the latter the operation may still be pending: its buffer belongs to
// the queue until Close, and the queue should not be used any more.
func Finish(ctx context.Context, q Queue, err error) error {
	if err == nil {
		err = q.Submit()
	}
	for err == nil {
		if err = q.Wait(ctx); err != nil {
			break
		}
		var done [1]Completion
		if q.Poll(done[:]) == 1 && done[0].Event != Committed {
			return done[0].Err
		}
	}
	return err
}
