package node

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
)

// leavePoll is the interval at which Leave checks whether memory is still lent.
const leavePoll = 20 * time.Millisecond

// Leave announces to a manager that the node is taken back after the notice (R22), so that
// caches move away. It returns when no memory is lent, when the notice has passed, or when
// ctx ends; the caller then closes the node. Announce, which runs meanwhile, tells a
// manager that does not know the node.
func (n *Node) Leave(ctx context.Context, mgr managerv1connect.ManagerServiceClient, notice time.Duration) {
	deadline := time.Now().Add(notice)
	n.leaves.Store(&deadline)
	staying, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	n.opts.Logger.Info("leaving", "vm", n.vm.ID, "lent", n.vm.Memory-n.VM().Free, "deadline", deadline)
	for announced := false; ; {
		if !announced {
			err := n.announceLeave(ctx, mgr)
			announced = err == nil || connect.CodeOf(err) == connect.CodeNotFound
			if !announced {
				n.opts.Logger.Warn("leave not announced to the manager", "vm", n.vm.ID, "err", err)
			}
		}
		if n.VM().Free == n.vm.Memory {
			n.answerLast()
			return
		}
		if !clock.Sleep(staying, leavePoll) {
			return
		}
	}
}

// answerTime bounds how long Leave waits for the answers to calls.
const answerTime = time.Second

// answerLast takes no more calls of the control API, and waits for the answers to those under
// way: one of them has returned the last memory.
func (n *Node) answerLast() {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if err := n.http.Shutdown(ctx); err != nil {
		n.opts.Logger.Warn("calls of the control API have not ended", "vm", n.vm.ID, "err", err)
	}
}

// announceLeave tells a manager of Leave's deadline, if there is one.
func (n *Node) announceLeave(ctx context.Context, mgr managerv1connect.ManagerServiceClient) error {
	deadline := n.leaves.Load()
	if deadline == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := mgr.Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{
		VmId: n.vm.ID, NoticeMs: max(0, time.Until(*deadline).Milliseconds()), Reason: "its server is leaving", Start: n.start.Load(),
	}))
	return err
}
