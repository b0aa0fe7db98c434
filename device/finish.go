package device

import "context"

// Finish carries out the operation that was just enqueued on a queue with nothing else
// under way, whose owner is the caller. err is what the queue said to it:
//
//	err := device.Finish(ctx, q, q.Read(dst, addr, 0))
//
// It submits, and waits for the operation's last event: of a write, until every tier is
// through with it. The error is the operation's, or that of Submit or Wait, with ctx's
// among them. After one of these the operation may still be under way: its buffer belongs
// to the queue until Close, and nothing more should be asked of the queue.
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
