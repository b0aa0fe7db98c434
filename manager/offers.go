package manager

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// ListOffers fails with InvalidArgument for a cloud region that there is not.
func (s service) ListOffers(ctx context.Context, req *connect.Request[managerv1.ListOffersRequest]) (*connect.Response[managerv1.ListOffersResponse], error) {
	from, err := s.m.supply(ctx, req.Msg.GetCloudRegion())
	if err != nil {
		return nil, err
	}
	from = s.m.catalog.withPools(from, s.m.opts.Transport)
	answer := &managerv1.ListOffersResponse{
		CloudRegion: from.region, MigrationBytesPerSecond: from.policy.MigrationRate,
	}
	for _, o := range from.offers {
		answer.Offers = append(answer.Offers, &managerv1.Offer{
			Type: o.Type, Spot: o.Spot, Memory: o.Memory, Cores: uint32(o.Cores), Distance: uint32(o.Distance),
			PriceMicros: int64(o.Price), Available: int32(o.Available), NoticeMs: o.Notice.Milliseconds(),
			LifetimeMs: o.Lifetime.Milliseconds(), Warm: uint32(o.Warm),
		})
	}
	return connect.NewResponse(answer), nil
}

// withPools is withWarm for who does not hold mu.
func (c *catalog) withPools(s supply, transport string) supply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withWarm(s, transport, false)
}

// market is what the allocator's VMs are sold by; nil if nobody sells them.
func (m *Manager) market() *menu.Market {
	if a, ok := m.opts.Allocator.(Marketer); ok {
		return a.Market()
	}
	return nil
}

// cloudRegion is the one that clients are in which name none; empty if there are no
// cloud regions.
func (m *Manager) cloudRegion() string {
	if k := m.market(); k != nil {
		return k.CloudRegion()
	}
	return ""
}

// ChangeMarket fails with FailedPrecondition where there is no simulated market, and for
// a VM that is to be reclaimed and is no spot VM,
// NotFound for what is not on the menu and VMs that were not sold, and
// InvalidArgument.
func (s service) ChangeMarket(_ context.Context, req *connect.Request[managerv1.ChangeMarketRequest]) (*connect.Response[managerv1.ChangeMarketResponse], error) {
	k := s.m.market()
	if k == nil {
		return nil, refuse(connect.CodeFailedPrecondition, errors.New("this manager's VMs are not sold by a simulated market"))
	}
	err := changeMarket(k, req.Msg)
	var region *menu.RegionError
	switch {
	case errors.Is(err, menu.ErrNotSpot):
		return nil, refuse(connect.CodeFailedPrecondition, err)
	case errors.Is(err, menu.ErrUnknownKind), errors.Is(err, menu.ErrUnknownVM):
		return nil, refuse(connect.CodeNotFound, err)
	case errors.As(err, &region):
		return nil, refuseCapacity(err, connect.CodeInvalidArgument)
	case err != nil:
		return nil, refuse(connect.CodeInvalidArgument, err)
	}
	return connect.NewResponse(&managerv1.ChangeMarketResponse{}), nil
}

func changeMarket(k *menu.Market, req *managerv1.ChangeMarketRequest) error {
	fail, reclaim, changes := req.GetFailVm(), req.GetReclaimVm(), req.PriceMicros != nil || req.Available != nil
	switch {
	case fail != "" && reclaim == "" && !changes:
		return k.Fail(fail)
	case reclaim != "" && fail == "" && !changes:
		return k.Reclaim(reclaim)
	case fail != "" || reclaim != "" || !changes:
		return errors.New("want a price or a number of available VMs, or one VM that is to fail or to be reclaimed")
	}
	at := menu.Kind{Type: req.GetType(), CloudRegion: req.GetCloudRegion(), Distance: int(req.GetDistance()), Spot: req.GetSpot()}
	kinds, err := k.Kinds(at)
	if err != nil {
		return err
	}
	var to menu.Change
	if p := req.PriceMicros; p != nil {
		to.Price = new(plan.Price(*p))
	}
	if n := req.Available; n != nil {
		to.Available = new(int(*n))
	}
	return k.Change(kinds, to)
}
