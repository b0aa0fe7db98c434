package manager

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// from is where a client is: offers depend on it.
type from struct {
	region  string // of the cloud; empty: the default region
	machine string // empty: not known
}

// from returns where a demand's client is.
func (d demand) from() from { return from{d.cloudRegion, d.client.GetMachine()} }

// supply returns the allocator's offers for a client. An empty region becomes the default
// region, so that a region has one name in the catalog.
func (l *leader) supply(ctx context.Context, client from) (supply, error) {
	return l.supplied(ctx, client, l.lives())
}

// lives returns a function that looks at all VMs once for how long those of each kind have lived.
func (l *leader) lives() func() map[menu.Kind]time.Duration {
	return sync.OnceValue(func() map[menu.Kind]time.Duration { return l.state.alive(l.opts.now()) })
}

// supplied is supply with lives for the offers of several clients.
func (l *leader) supplied(ctx context.Context, client from, lives func() map[menu.Kind]time.Duration) (supply, error) {
	client.region = cmp.Or(client.region, l.cloudRegion())
	region := client.region
	s := supply{from: client, policy: l.policy(), rates: &l.rates, economy: l.opts.Economy, now: l.opts.now()}
	if l.opts.Allocator == nil {
		if region != "" {
			return s, refuse(&menu.RegionError{Asked: region}, connect.CodeInvalidArgument)
		}
		return s, nil
	}
	offers, err := l.opts.Allocator.Offers(ctx, region, client.machine)
	if err != nil {
		return s, refuse(err, connect.CodeUnavailable)
	}
	s.offers = slices.Clone(offers)
	l.state.markSoldOut(s.offers, region, s.now)
	for i, o := range s.offers {
		if o.Spot && o.Lifetime == 0 {
			kind := kindOf(o, region)
			s.offers[i].Lifetime = l.opts.Predictor.Lifetime(kind, lives()[kind])
		}
		if most := l.opts.VMMemory; o.Fitted && most > 0 && (o.Memory == 0 || o.Memory > most) {
			s.offers[i].Memory = most
		}
	}
	return s, nil
}

// policyFor returns the policy for choosing the VMs of a demand.
func (s supply) policyFor(d demand) plan.Policy {
	p := s.policy
	p.MigrationRate = s.rates.of(d.transport, d.source)
	return p
}

// policy returns the present policy for choosing VMs, without the migration rate.
func (m *Manager) policy() plan.Policy {
	return plan.Policy{
		MaxVMs: maxVMsPerCache, Provision: m.opts.Provision, Margin: m.opts.NoticeMargin,
		MinLifetime: m.opts.MinLifetime, Room: m.room(),
	}
}

// room returns the memory limit of further VMs together; nil: none.
func (m *Manager) room() *uint64 {
	if a, ok := m.opts.Allocator.(allocator.Bounded); ok {
		return new(a.Room())
	}
	return nil
}

// ListOffers fails with InvalidArgument for an unknown cloud region.
func (s service) ListOffers(ctx context.Context, req *connect.Request[managerv1.ListOffersRequest]) (*connect.Response[managerv1.ListOffersResponse], error) {
	l, err := s.m.leading()
	if err != nil {
		return nil, err
	}
	all, err := l.supply(ctx, from{req.Msg.GetCloudRegion(), req.Msg.GetMachine()})
	if err != nil {
		return nil, err
	}
	all = l.state.withPools(all, l.opts.Transport)
	answer := &managerv1.ListOffersResponse{CloudRegion: all.region, MigrationBytesPerSecond: l.rates.of(l.opts.Transport, access.CallerOf(ctx).Name)}
	for _, o := range all.offers {
		answer.Offers = append(answer.Offers, &managerv1.Offer{
			Type: o.Type, Spot: o.Spot, Memory: o.Memory, Cores: uint32(o.Cores), Distance: uint32(o.Distance),
			PriceMicros: int64(o.Price), Available: int32(o.Available), NoticeMs: o.Notice.Milliseconds(),
			LifetimeMs: o.Lifetime.Milliseconds(), Warm: uint32(o.Warm), Note: o.Note,
		})
	}
	return connect.NewResponse(answer), nil
}

// withPools adds the warm VMs to a supply.
func (c *state) withPools(s supply, transport string) supply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withWarm(s, transport, false)
}

// market returns the allocator's simulated market; nil if it has none.
func (m *Manager) market() *menu.Market {
	if a, ok := m.opts.Allocator.(allocator.Marketer); ok {
		return a.Market()
	}
	return nil
}

// cloudRegion returns the default cloud region; empty if there are none.
func (m *Manager) cloudRegion() string {
	if k := m.market(); k != nil {
		return k.CloudRegion()
	}
	return ""
}

// ChangeMarket fails with FailedPrecondition without a simulated market, or to reclaim a VM
// that is no spot VM; NotFound for a type that is not on the menu or a VM that was not sold;
// and InvalidArgument.
func (s service) ChangeMarket(_ context.Context, req *connect.Request[managerv1.ChangeMarketRequest]) (*connect.Response[managerv1.ChangeMarketResponse], error) {
	k := s.m.market()
	if k == nil {
		return nil, api.Refuse(connect.CodeFailedPrecondition, errors.New("this manager has no simulated market"))
	}
	err := changeMarket(k, req.Msg)
	switch {
	case errors.Is(err, menu.ErrUnknownKind), errors.Is(err, menu.ErrUnknownVM):
		return nil, api.Refuse(connect.CodeNotFound, err)
	case err != nil:
		return nil, refuse(err, connect.CodeInvalidArgument)
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
