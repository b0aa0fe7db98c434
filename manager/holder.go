package manager

import (
	"context"
	"fmt"
	"math"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
)

// The holder of a cache is the client that uses it and may change it. Holders are numbered: 0 is
// the client that allocated the cache, and each Attach makes its caller the next one. Calls name
// their holder, so those of a client that another one has succeeded are refused, however late
// they come. Terms of grants carry the number, by which servers do the same.

// The owner of a cache is the token that has allocated it, by name. A client with another token is no
// holder: it is refused whatever number it gives.

// checkOwner refuses a call that names a cache of another owner.
func (c *state) checkOwner(ctx context.Context, req any) error {
	about, ok := req.(interface{ GetCacheId() string })
	if !ok {
		return nil
	}
	caller := access.CallerOf(ctx)
	if caller.Operator {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.caches[about.GetCacheId()]
	if ca == nil {
		return nil
	}
	return caller.CheckOwner(ca.owner, ca.id)
}

// checkHolder refuses a call of a client that does not hold the cache. Called under mu.
func (ca *cache) checkHolder(holder uint64) error {
	if holder != ca.holder {
		return &api.HolderError{Cache: ca.id, Holder: ca.holder}
	}
	return nil
}

// heldAs is held for a client that says which of its changes was answered last. The error is errOlder
// if this catalog is a copy of before that. Called under mu.
func (c *state) heldAs(id string, holder, answered uint64) (*cache, error) {
	ca, err := c.held(id, holder)
	if err == nil && answered > ca.lastChange() {
		err = fmt.Errorf("cache %s %w: the client's last change is %d, this catalog's %d", id, errOlder, answered, ca.lastChange())
	}
	return ca, err
}

// lastChange returns the number of the last change that was answered. Called under mu.
func (ca *cache) lastChange() uint64 { return max(ca.change, ca.last.GetNumber()) }

// held returns the cache of a call of its holder. Called under mu.
func (c *state) held(id string, holder uint64) (*cache, error) {
	ca, err := c.known(id)
	if err == nil {
		err = ca.checkHolder(holder)
	}
	return ca, err
}

// takeUp serves Attach.
func (l *leader) takeUp(_ context.Context, req *managerv1.AttachRequest) (*managerv1.AttachResponse, error) {
	err := checkRequestID(req.GetRequestId())
	if err == nil {
		err = checkLinger(req.GetLingerMs())
	}
	if err == nil && len(req.GetClient().GetMachine()) > api.MaxIDLen {
		err = fmt.Errorf("client: machine %.40q: want at most %d bytes", req.GetClient().GetMachine(), api.MaxIDLen)
	}
	if err != nil {
		return nil, api.Refuse(connect.CodeInvalidArgument, err)
	}
	ca, again, err := l.state.takeUp(req, l.grantedLinger(req.GetLingerMs()), l.term())
	if err == nil && again {
		err = l.state.written()
	}
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	answer, err := l.takenUp(ca, req)
	if err != nil {
		return nil, refuse(err, connect.CodeUnavailable)
	}
	if !again {
		l.counts.note(func(n *Metrics) { n.Attached++ })
		l.opts.Logger.Info("cache taken up", "cache", ca.id, "holder", answer.GetHolder(), "capacity", units.Size(answer.GetCapacity()).String(),
			"grants", len(answer.GetGrants()))
	}
	return answer, nil
}

// takeUp gives a cache its next holder. What the former one had begun is given up: its requests
// for memory, and the places of regions that it may have moved. It reports whether the call is a
// repetition, which changes nothing.
func (c *state) takeUp(req *managerv1.AttachRequest, linger time.Duration, t term) (_ *cache, again bool, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca, err := c.known(req.GetCacheId())
	switch {
	case err != nil:
		return nil, false, err
	case ca.attachID == req.GetRequestId() && ca.holder == req.GetHolder()+1:
		return ca, true, nil
	}
	if err := ca.checkHolder(req.GetHolder()); err != nil {
		return nil, false, err
	}
	if want := req.GetCapacity(); want > 0 && want != ca.demand.capacity {
		return nil, false, fmt.Errorf("cache %s has a capacity of %v, not %v", ca.id, units.Size(ca.demand.capacity), units.Size(min(want, math.MaxInt64)))
	}
	ca.change = ca.lastChange()
	c.succeed(ca, ca.holder+1, req.GetRequestId(), t)
	ca.forgetMoved()
	if req.LingerMs != nil {
		ca.linger = linger
	}
	if req.GetClient() != nil {
		ca.demand.client = req.GetClient()
	}
	ca.lingers = time.Time{}
	ca.renew(t)
	c.touch(ca)
	return ca, false, nil
}

// succeed makes a client that of the cache. What the former one had begun is given up, with its pending
// grants, and its watchers end. Called under mu.
func (c *state) succeed(ca *cache, holder uint64, attachID string, t term) {
	c.giveUp(ca, &api.HolderError{Cache: ca.id, Holder: holder})
	ca.holder, ca.attachID, ca.last, ca.move = holder, attachID, nil, nil
	c.leave(ca.pending)
	ca.pending, ca.measurements = nil, measurements{since: t.now()}
	c.wake(&ca.log)
}

// takenUp returns the answer of an Attach that is written.
func (l *leader) takenUp(ca *cache, req *managerv1.AttachRequest) (*managerv1.AttachResponse, error) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if ca.ended {
		return nil, noCache(ca.id)
	}
	p := ca.priced(ca.proto())
	grants, err := l.withTokens(ca, req.GetHolder()+1, p.Grants, ca.grants)
	if err != nil {
		return nil, err
	}
	return &managerv1.AttachResponse{
		Holder: ca.holder, Capacity: p.Capacity, Slo: p.Slo, Configuration: p.Configuration, RegionSize: p.RegionSize,
		Grants: grants, Places: ca.places,
		LeaseMs: ca.lease.Milliseconds(), LingerMs: ca.linger.Milliseconds(), Change: ca.change, DurationSeconds: ca.demand.duration,
		Per: ca.demand.per, Transport: ca.demand.transport,
	}, nil
}
