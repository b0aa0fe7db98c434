package manager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// holding is the client's view of a cache.
type holding struct {
	id       string
	change   uint64 // last number that was used
	renewed  time.Time
	capacity uint64
	grants   []granted // of the last Settle, or of Allocate
	pending  []granted
}

// granted is the client's view of a grant.
type granted struct {
	grant   string
	regions uint32
}

func grantedOf(grants []*managerv1.Grant) []granted {
	var all []granted
	for _, s := range grants {
		all = append(all, granted{s.GetId(), s.GetRegions()})
	}
	return all
}

// random makes random control calls to a manager with an allocator and two registered
// servers.
type random struct {
	world  *world
	rng    *rand.Rand
	caches []*holding // allocated by this client, and not deallocated
}

const (
	randomRegion = 1 << 20
	randomLease  = time.Minute
)

// step makes one call. It returns an error for a wrong answer.
func (r *random) step(ctx context.Context) error {
	switch n := r.rng.IntN(40); {
	case n < 9:
		return r.allocate(ctx)
	case n < 15:
		return r.deallocate(ctx)
	case n < 22:
		return r.reallocate(ctx)
	case n < 29:
		return r.settle(ctx)
	case n < 31:
		return r.reclaim(ctx)
	case n < 34:
		return r.renew(ctx)
	case n < 36:
		r.world.l.expireAt(r.world.clock.advance(time.Duration(r.rng.IntN(20)) * time.Second))
	case n < 38:
		r.world.kill()
	case n < 39:
		// A registered server is restarted and loses what it held.
		id := fmt.Sprintf("pool-%d", r.rng.IntN(2))
		return r.world.l.state.register(testVM(id, 8<<20, 2, r.world.control(id)), "", r.world.clock.read().Add(time.Hour))
	default:
		r.world.l.fail(fmt.Sprintf("pool-%d", r.rng.IntN(2)), nil, "unplugged")
	}
	return nil
}

func (r *random) configuration() *managerv1.Configuration {
	if s := uint32(r.rng.IntN(4)); s > 0 {
		return &managerv1.Configuration{ClientThreads: s, ServerThreads: s, BatchSize: 2, QueueDepth: 4}
	}
	return nil
}

func (r *random) allocate(ctx context.Context) error {
	req := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 + r.rng.Uint64N(12<<20), RegionSize: randomRegion, Configuration: r.configuration()}
	now := r.world.clock.read() // read before the call, as the lease may begin before others move the clock
	r1, err := service{m: r.world.m}.Allocate(ctx, connect.NewRequest(req))
	if err != nil {
		return only(err, connect.CodeUnavailable, connect.CodeFailedPrecondition) // its lease may end before the answer, as others move the clock
	}
	answer := r1.Msg
	var regions uint64
	for _, s := range answer.GetGrants() {
		regions += uint64(s.GetRegions())
	}
	if regions*answer.GetRegionSize() < req.Capacity {
		return fmt.Errorf("%d regions for %d bytes", regions, req.Capacity)
	}
	h := &holding{id: answer.GetCacheId(), renewed: now, capacity: req.Capacity, grants: grantedOf(answer.GetGrants())}
	r.world.connect(h.id, answer.GetGrants())
	r.caches = append(r.caches, h)
	return nil
}

// only returns nil for an error with one of these codes.
func only(err error, codes ...connect.Code) error {
	if slices.Contains(codes, connect.CodeOf(err)) {
		return nil
	}
	return err
}

// pick returns one of the caches, or nil.
func (r *random) pick() *holding {
	if len(r.caches) == 0 {
		return nil
	}
	return r.caches[r.rng.IntN(len(r.caches))]
}

// gone removes a cache that the manager does not know. It returns an error if its lease has
// not ended.
func (r *random) gone(h *holding, err error) error {
	if connect.CodeOf(err) != connect.CodeNotFound && !errors.Is(err, errUnknownCache) {
		return nil
	}
	if !h.renewed.Add(randomLease).Before(r.world.clock.read()) {
		return fmt.Errorf("cache %s was renewed in time: %w", h.id, err)
	}
	r.caches = slices.DeleteFunc(r.caches, func(c *holding) bool { return c == h })
	return nil
}

func (r *random) deallocate(ctx context.Context) error {
	h := r.pick()
	if h == nil {
		return nil
	}
	s := service{m: r.world.m}
	req := &managerv1.DeallocateRequest{CacheId: h.id}
	answer, err := s.Deallocate(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	if !answer.Msg.GetExisted() {
		return r.gone(h, noCache(h.id))
	}
	r.caches = slices.DeleteFunc(r.caches, func(c *holding) bool { return c == h })
	if answer, err := s.Deallocate(ctx, connect.NewRequest(req)); err != nil || answer.Msg.GetExisted() {
		return fmt.Errorf("deallocated twice: %v, %w", answer, err)
	}
	return nil
}

func (r *random) renew(ctx context.Context) error {
	h := r.pick()
	if h == nil {
		return nil
	}
	now := r.world.clock.read()
	_, err := service{m: r.world.m}.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: h.id}))
	if err != nil {
		return errors.Join(r.gone(h, err), only(err, connect.CodeNotFound))
	}
	h.renewed = now
	return nil
}

func (r *random) reallocate(ctx context.Context) error {
	h := r.pick()
	if h == nil {
		return nil
	}
	h.change++
	req := &managerv1.ReallocateRequest{
		CacheId: h.id, Change: h.change, Regions: uint32(r.rng.IntN(8)), PreferPresent: r.rng.IntN(2) == 0, Configuration: r.configuration(),
	}
	if r.rng.IntN(3) == 0 {
		req.AvoidVms = []string{fmt.Sprintf("pool-%d", r.rng.IntN(2))}
	}
	r1, err := service{m: r.world.m}.Reallocate(ctx, connect.NewRequest(req))
	if err != nil {
		if req.Regions == 0 {
			err = only(err, connect.CodeInvalidArgument)
		}
		return errors.Join(r.gone(h, err), only(err, connect.CodeNotFound, connect.CodeUnavailable), r.compare(h))
	}
	answer := r1.Msg
	var regions uint32
	for _, s := range answer.GetGrants() {
		regions += s.GetRegions()
		if slices.Contains(req.AvoidVms, s.GetVm().GetId()) {
			return fmt.Errorf("VM %v was not to be used", s.GetVm())
		}
	}
	if regions != req.Regions {
		return fmt.Errorf("%d regions, want %d", regions, req.Regions)
	}
	h.pending = append(h.pending, grantedOf(answer.GetGrants())...)
	r.world.connect(h.id, answer.GetGrants())
	return r.compare(h)
}

// settle chooses some of a cache's grants, sometimes invalidly.
func (r *random) settle(ctx context.Context) error {
	h := r.pick()
	if h == nil {
		return nil
	}
	chosen := slices.Concat(h.grants, h.pending)
	r.rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:1+r.rng.IntN(len(chosen))]
	var want connect.Code
	switch r.rng.IntN(8) {
	case 0:
		chosen, want = append(chosen, granted{"stranger", 1}), connect.CodeFailedPrecondition
	case 1:
		chosen, want = append(chosen, chosen[0]), connect.CodeInvalidArgument
	case 2:
		chosen[0].regions++
		want = connect.CodeInvalidArgument
	}
	h.change++
	req := &managerv1.SettleRequest{CacheId: h.id, Configuration: r.configuration(), Change: h.change}
	for i, g := range chosen {
		if want == 0 && r.rng.IntN(3) == 0 {
			chosen[i].regions = 1 + r.rng.Uint32N(g.regions)
		}
		req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.grant, Regions: chosen[i].regions})
		req.Capacity += uint64(chosen[i].regions) * randomRegion
	}
	if want == 0 && r.rng.IntN(8) == 0 {
		req.Capacity = 0
		want = connect.CodeInvalidArgument
	}
	for range 1 + r.rng.IntN(2) { // a Settle may be repeated
		_, err := service{m: r.world.m}.Settle(ctx, connect.NewRequest(req))
		if err != nil {
			if req.Configuration != nil {
				err = only(err, connect.CodeResourceExhausted)
			}
			return errors.Join(r.gone(h, err), only(err, connect.CodeNotFound, want), r.compare(h))
		}
		if want != 0 {
			return fmt.Errorf("settled as %v", req)
		}
		h.capacity, h.grants, h.pending = req.Capacity, chosen, nil
		if err := r.compare(h); err != nil {
			return err
		}
	}
	return nil
}

// reclaim reclaims some VM.
func (r *random) reclaim(ctx context.Context) error {
	vms := r.world.l.state.describe().GetVms()
	if len(vms) == 0 {
		return nil
	}
	id := vms[r.rng.IntN(len(vms))].GetId()
	_, err := service{m: r.world.m}.Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: id, NoticeMs: int64(r.rng.IntN(30_000))}))
	if err != nil {
		return only(err, connect.CodeNotFound) // the VM has failed
	}
	return nil
}

// compare compares the manager's view of a cache with the client's: a failed call has
// changed nothing, a successful one everything.
func (r *random) compare(h *holding) error {
	select {
	case <-r.world.l.ctx.Done():
		return nil // it has crashed
	default:
	}
	for _, ca := range r.world.l.state.describe().GetCaches() {
		if ca.GetId() != h.id {
			continue
		}
		got, want := grantedOf(ca.GetGrants()), slices.Concat(h.grants, h.pending)
		if !slices.Equal(got, want) || ca.GetCapacity() != h.capacity {
			return fmt.Errorf("cache %s has %v for %d bytes, want %v for %d", h.id, got, ca.GetCapacity(), want, h.capacity)
		}
	}
	return nil // the cache may have expired
}

// Random operations and failures, with a check after each.
func TestRandomControl(t *testing.T) {
	w, rs := newWorld(t, 1)
	for i := range 4000 {
		if err := rs[0].step(testContext(t)); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if w.check(t); t.Failed() {
			t.Fatalf("after step %d", i)
		}
	}
	w.finish(t, rs)
}
