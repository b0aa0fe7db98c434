package manager

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
)

// untilSold repeats a call whose VMs are sold out meanwhile, or turn out to be too far away.
// Somebody else has got the former, so that each try makes progress; the pauses are for an
// allocator whose offers are late.
func untilSold[A any](ctx context.Context, try func() (A, error)) (answer A, err error) {
	far := 0
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		answer, err = try()
		if errors.Is(err, errTooFar) {
			far++
		} else if !errors.Is(err, menu.ErrSoldOut) {
			return answer, err
		}
		if far > maxTooFar || !clock.Sleep(ctx, clock.Jitter(pause)) {
			return answer, err
		}
	}
}

// maxTooFar bounds the tries of a call whose VMs turn out to be too far away.
const maxTooFar = 4

// allocate serves Allocate.
func (l *leader) allocate(ctx context.Context, req *managerv1.AllocateRequest) (*managerv1.AllocateResponse, error) {
	answer, err := untilSold(ctx, func() (*managerv1.AllocateResponse, error) { return l.tryAllocate(ctx, req) })
	l.counts.note(func(n *Metrics) {
		switch {
		case err == nil && len(answer.GetPending()) == 0:
			n.Allocated++
		case connect.CodeOf(err) == connect.CodeResourceExhausted:
			n.Refused++
		}
	})
	return answer, err
}

// tryAllocate is one try of allocate: prepare, reserve, wait for the VMs. If a step fails, all
// of the cache is released (R17).
func (l *leader) tryAllocate(ctx context.Context, req *managerv1.AllocateRequest) (*managerv1.AllocateResponse, error) {
	sum, err := requestSum(req, access.CallerOf(ctx).Name)
	if err != nil {
		return nil, err
	}
	ca, r, err := l.state.attach(req.GetRequestId(), sum)
	if err != nil {
		return nil, refuse(l.sure(err), connect.CodeUnavailable)
	}
	if ca == nil {
		d, s, err := l.prepare(ctx, req)
		if errors.Is(err, errNoCapacity) {
			err = api.Refuse(connect.CodeInvalidArgument, &api.CapacityError{What: "capacity", Available: l.most(ctx, req)})
		}
		if err != nil {
			return nil, err
		}
		d.linger, d.inOrder = l.grantedLinger(req.GetLingerMs()), req.GetInOrder()
		if ca, r, err = l.reserve(ctx, d, s, req.GetRequestId(), sum); err != nil {
			l.abandon(r, err)
			return nil, refuse(l.sure(err), connect.CodeInvalidArgument)
		}
	}
	pending, err := l.await(ctx, r, time.Duration(req.GetWaitMs())*time.Millisecond)
	if err != nil {
		l.opts.Logger.Warn("cache not allocated", "capacity", units.Size(req.GetCapacity()).String(), "err", err)
		return nil, refuse(l.boundCapacity(ca.demand, err), connect.CodeUnavailable)
	}
	if len(pending) > 0 {
		return &managerv1.AllocateResponse{CacheId: ca.id, Pending: pending}, nil
	}
	answer, err := l.allocated(ca)
	if err != nil {
		return nil, refuse(err, connect.CodeUnavailable)
	}
	l.opts.Logger.Info("cache allocated", "cache", ca.id, "capacity", units.Size(req.GetCapacity()).String(),
		"vms", len(answer.GetGrants()), "duration_seconds", req.GetDurationSeconds())
	return answer, nil
}

// sure returns the error of a call when what it says is written: another call may have ended
// the cache right now.
func (l *leader) sure(err error) error {
	if errors.Is(err, errEnded) {
		return cmp.Or(l.state.written(), err)
	}
	return err
}

// Bounds of a request's id.
const (
	minRequestID = 16
	maxRequestID = 64
)

// requestSum checks a request's id, and returns a hash of the request's other fields but for
// wait_ms, and of the owner: another client's request is no repetition.
func requestSum(req *managerv1.AllocateRequest, owner string) ([]byte, error) {
	if err := checkRequestID(req.GetRequestId()); err != nil {
		return nil, api.Refuse(connect.CodeInvalidArgument, err)
	}
	if ms := req.GetWaitMs(); ms < 0 || ms > maxWait.Milliseconds() {
		return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("wait_ms %d: want 0 to %d", ms, maxWait.Milliseconds()))
	}
	if err := checkLinger(req.GetLingerMs()); err != nil {
		return nil, api.Refuse(connect.CodeInvalidArgument, err)
	}
	req = proto.CloneOf(req)
	req.RequestId, req.WaitMs = "", 0
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	sum := sha256.Sum256(append(text, owner...))
	return sum[:], err
}

func checkRequestID(id string) error {
	if n := len(id); n < minRequestID || n > maxRequestID {
		return fmt.Errorf("request_id of %d bytes: want %d to %d", n, minRequestID, maxRequestID)
	}
	return nil
}

// maxWait bounds wait_ms.
const maxWait = 24 * time.Hour

// attach returns the cache of an earlier call with the same request, and the request that
// await waits for; nil: there is none. The error is errEnded for a cache that has ended.
func (c *state) attach(id string, sum []byte) (*cache, *request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(id, sum)
}

// find is attach, called under mu.
func (c *state) find(id string, sum []byte) (*cache, *request, error) {
	ca, p := c.asked[id], c.ended[id]
	switch {
	case p != nil:
		return nil, nil, p.refusal()
	case ca == nil:
		return nil, nil, nil
	case !bytes.Equal(ca.requestSum, sum):
		return nil, nil, api.Refuse(connect.CodeAlreadyExists, fmt.Errorf("request_id %s was used for another request", id))
	}
	r := ca.request
	if ca.ready {
		r = answered()
	}
	r.waiting++
	return ca, r, nil
}

// answered returns a request that was granted before.
func answered() *request {
	r := &request{done: make(chan struct{})}
	close(r.done)
	return r
}

// boundCapacity makes an error about one VM's memory one about the cache's.
func (l *leader) boundCapacity(d demand, err error) error {
	few, ok := errors.AsType[*api.CapacityError](err)
	if !ok {
		return err
	}
	s, e := l.supply(l.ctx, d.from())
	if e != nil {
		return err
	}
	if most := l.largest(d, s); most < d.capacity {
		return &api.CapacityError{What: few.What, Asked: d.capacity, Available: most}
	}
	return err
}

// allocated returns the answer of Allocate for a ready cache, when all of it is written.
func (l *leader) allocated(ca *cache) (*managerv1.AllocateResponse, error) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if l.state.writer.written.Load() < ca.txn { // another call has changed it meanwhile, or this one is a repetition
		l.state.mu.Unlock()
		err := l.state.written()
		l.state.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	if ca.past != nil {
		return nil, ca.past.refusal()
	}
	p := ca.priced(ca.proto())
	grants, err := l.withTokens(ca, 0, p.Grants, ca.grants)
	if err != nil {
		return nil, err
	}
	return &managerv1.AllocateResponse{
		CacheId: p.Id, Grants: grants, Configuration: p.Configuration, RegionSize: p.RegionSize,
		LeaseMs: ca.lease.Milliseconds(), LingerMs: ca.linger.Milliseconds(),
	}, nil
}

// prepare returns what a request needs, and the VMs that there are for it. The error is the
// call's.
func (l *leader) prepare(ctx context.Context, req *managerv1.AllocateRequest) (d demand, s supply, err error) {
	d, err = decide(req, l.opts.Transport)
	if a, ok := l.opts.Allocator.(allocator.Transporter); ok && err == nil {
		err = a.CheckTransport(d.transport)
	}
	if err != nil {
		return d, s, api.Refuse(connect.CodeInvalidArgument, err)
	}
	if req.GetConfiguration() == nil {
		configs, err := l.search.search(d.slo, d.transport, req.GetClient())
		if err != nil {
			return d, s, err
		}
		d.found(configs)
	}
	s, err = l.supply(ctx, d.from())
	d.cloudRegion, d.source = s.region, access.CallerOf(ctx).Name
	return d, s, err
}

// reserve reserves memory for a cache with the largest regions for which there is room. The
// error names the most memory that is available with regions of any size.
func (l *leader) reserve(ctx context.Context, d demand, s supply, requestID string, sum []byte) (ca *cache, r *request, err error) {
	var short *api.CapacityError
	for _, in := range d.sizes() {
		ca, r, err = l.reserveIn(ctx, in, s, requestID, sum)
		few, ok := errors.AsType[*api.CapacityError](err)
		if !ok || !d.shrinks {
			return ca, r, err
		}
		if short == nil || few.Available > short.Available {
			short = few
			short.Asked = d.capacity
		}
	}
	return nil, nil, short
}

// reserveIn chooses VMs for a new cache and reserves their memory. VMs to launch enter the
// state as starting. If the chosen memory is no longer free when it is reserved, another call
// has got it, and a new plan is made.
func (l *leader) reserveIn(ctx context.Context, d demand, s supply, requestID string, sum []byte) (*cache, *request, error) {
	for ctx.Err() == nil {
		p, err := l.state.place(d, l.state.named(d.on), nil, l.state.look(d, s))
		if err != nil {
			return nil, nil, err
		}
		within := reachOf(d.configs, p.config)
		d := d
		d.config, d.distance, d.configs, d.shrinks, d.on = p.config, p.distance, nil, false, ""
		ca := &cache{
			stored: new(stored), id: "cache-" + rand.Text(), owner: access.CallerOf(ctx).Name, requestID: requestID, requestSum: sum, demand: d, log: newEventLog(), created: s.now, moved: s.now,
		}
		ca.linger, ca.inOrder, ca.own = d.linger, d.inOrder, isOwn(ctx)
		ca.demand.source = ca.source()
		ca.decisions.of = ca
		if ca, r, err := l.state.reserveNew(ca, p, within, l.term()); r != nil || err != nil {
			return ca, r, err
		}
	}
	return nil, nil, context.Cause(ctx)
}

// named returns the VM of that id, if it is up and was not launched, be it for one cache or for a warm
// pool.
func (c *state) named(id string) []*vm {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[id]; v != nil && v.ControlURL != "" && !v.launched {
		return []*vm{v}
	}
	return nil
}

// reserveNew reserves the chosen memory for a new cache. It returns nil if it is no longer
// free, and the present cache if a repetition of the request was faster.
func (c *state) reserveNew(ca *cache, p placement, within reach, t term) (_ *cache, _ *request, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if present, r, err := c.find(ca.requestID, ca.requestSum); present != nil || err != nil {
		return present, r, err
	}
	if !c.stillFree(p, ca.demand) {
		return nil, nil, nil
	}
	c.caches[ca.id], c.asked[ca.requestID] = ca, ca
	r := c.begin(ca, addition{grants: c.reserve(ca, ca.demand, p.parts), decision: p.decision, within: within}, 0, t)
	r.waiting++
	return ca, r, nil
}

// most returns the largest capacity with which a request would succeed now.
func (l *leader) most(ctx context.Context, req *managerv1.AllocateRequest) uint64 {
	req = proto.CloneOf(req)
	req.Capacity = cmp.Or(req.GetRegionSize(), defaultRegionSize)
	d, s, err := l.prepare(ctx, req)
	if err != nil {
		return 0
	}
	return l.largest(d, s)
}

// largest returns the largest capacity for which there is room, with regions of any size that
// the demand permits.
func (l *leader) largest(d demand, s supply) (most uint64) {
	s.policy.Room = l.room()
	s = l.state.look(d, s)
	for _, d := range d.sizes() {
		d.regions, d.per = maxRegions, maxRegions
		bytes, err := l.state.pool.Largest(&l.state.mu, d.plan(), s.offers, s.policyFor(d), nil, s.now)
		if err != nil {
			return 0
		}
		most = max(most, bytes)
	}
	return most
}

func newVMID() string { return launchedPrefix + rand.Text() }

// refuse returns the error of a call with err's code, or the code otherwise if err has none.
func refuse(err error, otherwise connect.Code) error {
	var capacity *api.CapacityError
	var answer *connect.Error
	var region *menu.RegionError
	var start *api.StartError
	var holder *api.HolderError
	switch {
	case errors.As(err, &capacity), errors.Is(err, menu.ErrSoldOut), errors.Is(err, errCores):
		return api.Refuse(connect.CodeResourceExhausted, err)
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, errUnknownCache), errors.Is(err, errUnknownVM):
		return api.Refuse(connect.CodeNotFound, err)
	case errors.Is(err, errOlder):
		return api.Refuse(connect.CodeAborted, err)
	case errors.Is(err, errStore), errors.Is(err, errUnusable):
		return api.Refuse(connect.CodeUnavailable, err)
	case errors.Is(err, allocator.ErrTransport), errors.As(err, &region):
		return api.Refuse(connect.CodeInvalidArgument, err)
	case errors.As(err, &holder), errors.Is(err, errNotWorth), errors.Is(err, errStale), errors.Is(err, errEnded), errors.Is(err, errGrant), errors.Is(err, menu.ErrNotSpot), errors.As(err, &start):
		return api.Refuse(connect.CodeFailedPrecondition, err)
	case errors.Is(err, context.Canceled):
		return api.Refuse(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return api.Refuse(connect.CodeDeadlineExceeded, err)
	}
	return api.Refuse(otherwise, err)
}
