package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/api"
)

// Pauses between a node's attempts to register. The pause doubles from the first to the
// last, with random jitter, so that a restarted manager is not flooded (A34).
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// callTimeout bounds one call to the manager.
const callTimeout = 5 * time.Second

// Announce registers the node with a manager and sends heartbeats until ctx ends, and then
// returns nil. While the manager does not answer, or does not know the node, it registers
// again; grants are kept. After the deadline of Leave it does not. registered, which may be nil, is called after each registration.
// An error is a refusal that does not change.
func (n *Node) Announce(ctx context.Context, mgr managerv1connect.ManagerServiceClient, registered func()) error {
	for retry := firstRetry; ctx.Err() == nil; {
		if leaves := n.leaves.Load(); leaves != nil && !time.Now().Before(*leaves) {
			<-ctx.Done() // the manager knows it no more, which is right
			return nil
		}
		interval, err := n.Register(ctx, mgr)
		switch connect.CodeOf(err) {
		case connect.CodeInvalidArgument, connect.CodeAlreadyExists:
			return fmt.Errorf("cache server %s: refused by the manager: %w", n.vm.ID, err)
		}
		if err != nil {
			n.opts.Logger.Warn("not registered with the manager", "vm", n.vm.ID, "err", err)
			clock.Sleep(ctx, clock.Jitter(retry))
			retry = min(2*retry, lastRetry)
			continue
		}
		retry = firstRetry
		if registered != nil {
			registered()
		}
		n.beat(ctx, mgr, interval)
	}
	return nil
}

// Register registers the node once. It returns the interval of heartbeats that the
// manager asks for. If the manager refuses the node's number as too low, the next call has a
// higher one.
func (n *Node) Register(ctx context.Context, mgr managerv1connect.ManagerServiceClient) (time.Duration, error) {
	if n.leaves.Load() != nil {
		ctx = context.WithoutCancel(ctx) // who registers it tells as well that it leaves, which ends ctx
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := mgr.Register(ctx, connect.NewRequest(&managerv1.RegisterRequest{
		Vm: n.VM().Proto(true), ControlSecret: []byte(n.vm.Secret),
	}))
	if later, ok := errors.AsType[*api.StartError](api.Typed(err)); ok {
		// This process lives, so the other one, of a clock that was ahead, has ended.
		n.start.Store(max(n.start.Load(), later.Present+1))
	}
	if err != nil {
		return 0, err
	}
	if err := n.server.Obey(incarnationOf(r.Msg.GetIncarnation())); err != nil {
		return 0, err
	}
	if key := r.Msg.GetSourceKey(); len(key) > 0 { // else the manager is of an earlier version
		if err := n.server.TrustSources(key); err != nil {
			return 0, err
		}
	}
	if err := n.announceLeave(ctx, mgr); err != nil {
		return 0, err
	}
	interval := time.Duration(r.Msg.GetHeartbeatMs()) * time.Millisecond
	return min(max(interval, time.Millisecond), time.Minute), nil
}

// beat sends heartbeats until ctx ends, the manager does not know the node, or the node
// obeys another manager. A call is given up before the manager misses several heartbeats;
// the next one uses another connection.
func (n *Node) beat(ctx context.Context, mgr managerv1connect.ManagerServiceClient, interval time.Duration) {
	for clock.Sleep(ctx, interval) {
		call, cancel := context.WithTimeout(ctx, min(max(2*interval, time.Second), callTimeout))
		vm := n.VM()
		r, err := mgr.Heartbeat(call, connect.NewRequest(&managerv1.HeartbeatRequest{VmId: vm.ID, FreeMemory: vm.Free, Start: vm.Start}))
		cancel()
		if connect.CodeOf(err) == connect.CodeNotFound {
			return
		}
		if err != nil {
			continue
		}
		if err := n.server.Obey(incarnationOf(r.Msg.GetIncarnation())); err != nil {
			n.opts.Logger.Warn("heartbeat answered by another manager", "vm", n.vm.ID, "err", err)
			return
		}
	}
}

// incarnationOf converts the incarnation in a manager's answer.
func incarnationOf(p *managerv1.Incarnation) controltoken.Incarnation {
	bound := min(max(0, p.GetBoundMs()), maxBound.Milliseconds())
	return controltoken.Incarnation{Epoch: p.GetEpoch(), ID: p.GetId(), Bound: time.Duration(bound) * time.Millisecond}
}

// maxBound is the maximum of an incarnation's Bound.
const maxBound = 24 * time.Hour
