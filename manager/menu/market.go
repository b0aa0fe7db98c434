package menu

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/plan"
)

// Options configure a market.
type Options struct {
	// CloudRegion is the default cloud region. Default: the menu's first.
	CloudRegion string
	// Clock times changes of prices and the lifetimes of VMs, but not notices. Default: the
	// system's.
	Clock clock.Clock
	// Seed is the seed of random numbers.
	Seed uint64
	// Step is the interval of changes of prices and availability. Default: 1 min; negative:
	// never.
	Step time.Duration
}

// Events receives a market's events. Its methods are called without locks, on goroutines of
// the clock or of the market's callers.
type Events interface {
	// VMReclaimed reports that a VM is taken back after the notice.
	VMReclaimed(id string, notice time.Duration)
	// VMFailed reports that a VM has failed.
	VMFailed(id string)
	// MarketChanged reports that an offer has become cheaper or available again.
	MarketChanged()
}

// Kind identifies an offer.
type Kind struct {
	Type        string `json:"type"`
	CloudRegion string `json:"cloud_region"`
	Distance    int    `json:"distance"`
	Spot        bool   `json:"spot"`
}

// String describes the kind; distance 0 is any.
func (k Kind) String() string {
	name := k.Type
	if k.Spot {
		name += " (spot)"
	}
	name += " in " + k.CloudRegion
	if k.Distance == 0 {
		return name
	}
	return fmt.Sprintf("%s at distance %d", name, k.Distance)
}

func (k Kind) compare(o Kind) int {
	c := cmp.Or(strings.Compare(k.Type, o.Type), strings.Compare(k.CloudRegion, o.CloudRegion), cmp.Compare(k.Distance, o.Distance))
	switch {
	case c != 0 || k.Spot == o.Spot:
		return c
	case k.Spot:
		return 1
	}
	return -1
}

// Errors of a market. [RegionError] is another.
var (
	ErrUnknownKind = errors.New("not on the menu")
	ErrUnknownVM   = errors.New("no such VM was sold")
	ErrSoldOut     = errors.New("sold out")
	ErrClosed      = errors.New("the market is closed")
	ErrNotSpot     = errors.New("not a spot VM")
)

// Market sells VMs. Its methods are safe for concurrent use.
type Market struct {
	menu   Menu
	opts   Options
	events Events

	mu     sync.Mutex
	random *rand.Rand
	kinds  []*kind // in the order of Kind.compare
	vms    map[string]*sale
	step   clock.Timer
	closed bool
}

// kind is one offer. Guarded by Market.mu, except Kind, typ and sold, which do not change.
type kind struct {
	Kind
	typ  Type
	sold Sold

	price  plan.Price
	fixed  bool // the price was set by hand: it wanders no more
	limit  int  // at a time; negative: any number
	ours   int  // sold to us
	others int  // taken by others, of a spot kind's limit
}

// sale is a VM that was sold.
type sale struct {
	kind   *kind
	timers []clock.Timer // its end, by chance
}

// NewMarket returns a market of a menu, which it checks as [Parse] does.
func NewMarket(m Menu, opts Options, events Events) (*Market, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("menu: %w", err)
	}
	opts.CloudRegion = cmp.Or(opts.CloudRegion, m.Regions()[0])
	if err := m.checkRegion(opts.CloudRegion); err != nil {
		return nil, err
	}
	opts.Clock = cmp.Or(opts.Clock, clock.Real())
	opts.Step = cmp.Or(opts.Step, time.Minute)
	k := &Market{
		menu: m, opts: opts, events: events, vms: make(map[string]*sale),
		random: rand.New(rand.NewPCG(opts.Seed, 0)),
	}
	for _, t := range m.Types {
		for _, s := range t.Sold {
			k.add(t, s, false, s.Price, s.Available)
			if s.Spot != nil {
				k.add(t, s, true, s.Spot.Price, s.Spot.Available)
			}
		}
	}
	slices.SortFunc(k.kinds, func(a, b *kind) int { return a.compare(b.Kind) })
	k.schedule()
	return k, nil
}

// add adds an offer. Called while the market is not shared.
func (m *Market) add(t Type, s Sold, spot bool, dollars float64, available *int) {
	k := &kind{Kind: Kind{t.Name, s.CloudRegion, s.Distance, spot}, typ: t, sold: s, price: plan.Dollars(dollars), limit: -1}
	if available != nil {
		k.limit = *available
	}
	m.kinds = append(m.kinds, k)
}

// Close stops all timers. No event is sent afterwards by the market itself.
func (m *Market) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.step != nil {
		m.step.Stop()
	}
	for _, v := range m.vms {
		v.stop()
	}
}

func (s *sale) stop() {
	for _, t := range s.timers {
		t.Stop()
	}
}

// HasSpot reports whether the market sells spot VMs.
func (m *Market) HasSpot() bool {
	return slices.ContainsFunc(m.kinds, func(k *kind) bool { return k.Spot })
}

// CloudRegion returns the default cloud region.
func (m *Market) CloudRegion() string { return m.opts.CloudRegion }

// Offers lists the offers of a cloud region, sold-out ones included. An empty region is the
// default; an unknown one is a [*RegionError].
func (m *Market) Offers(region string) ([]plan.Offer, error) {
	region = cmp.Or(region, m.opts.CloudRegion)
	if err := m.menu.checkRegion(region); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []plan.Offer
	for _, k := range m.kinds {
		if k.CloudRegion == region {
			all = append(all, k.offer())
		}
	}
	return all, nil
}

// offer is called under mu.
func (k *kind) offer() plan.Offer {
	o := plan.Offer{
		Type: k.Type, Spot: k.Spot, Memory: uint64(k.typ.Memory), Cores: k.typ.Cores, Distance: k.Distance,
		Price: k.price, Available: k.left(),
	}
	if k.Spot {
		o.Notice = time.Duration(k.sold.Spot.Notice)
	}
	return o
}

// left returns how many can be sold; negative: any number. Called under mu.
func (k *kind) left() int {
	if k.limit < 0 {
		return -1
	}
	return max(0, k.limit-k.ours-k.others)
}

// find returns a kind, in the default region if at names none.
func (m *Market) find(at Kind) (*kind, error) {
	at.CloudRegion = cmp.Or(at.CloudRegion, m.opts.CloudRegion)
	i, ok := slices.BinarySearchFunc(m.kinds, at, func(k *kind, at Kind) int { return k.compare(at) })
	if !ok {
		return nil, fmt.Errorf("%v: %w", at, ErrUnknownKind)
	}
	return m.kinds[i], nil
}

// Kinds lists the kinds of a type, those of all distances if at has distance 0. A region
// that is not on the menu is a [*RegionError].
func (m *Market) Kinds(at Kind) ([]Kind, error) {
	at.CloudRegion = cmp.Or(at.CloudRegion, m.opts.CloudRegion)
	if err := m.menu.checkRegion(at.CloudRegion); err != nil {
		return nil, err
	}
	var all []Kind
	for _, k := range m.kinds { // which does not change
		if k.Type == at.Type && k.CloudRegion == at.CloudRegion && k.Spot == at.Spot && (at.Distance == 0 || k.Distance == at.Distance) {
			all = append(all, k.Kind)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%v: %w", at, ErrUnknownKind)
	}
	return all, nil
}

// Sell sells a VM, which may be reclaimed or fail from then on.
func (m *Market) Sell(id string, at Kind) error {
	return m.record(id, at, false)
}

// Resume is Sell for a VM that an earlier market sold, whether or not it is available. A VM
// that this market has sold is no error.
func (m *Market) Resume(id string, at Kind) error {
	return m.record(id, at, true)
}

// record records a VM of a kind as sold. resumed is Resume's.
func (m *Market) record(id string, at Kind, resumed bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(at)
	switch {
	case resumed && m.vms[id] != nil:
		return nil
	case err != nil:
		return err
	case m.vms[id] != nil:
		return fmt.Errorf("VM %s was sold already", id)
	case m.closed:
		return ErrClosed
	case !resumed && k.left() == 0:
		return fmt.Errorf("%v: %w", k.Kind, ErrSoldOut)
	}
	k.ours++
	v := &sale{kind: k}
	m.vms[id] = v
	m.startTimers(id, v)
	return nil
}

// startTimers starts the timers of a VM's failure and reclaim. Called under mu.
func (m *Market) startTimers(id string, v *sale) {
	end := func(mean Duration, call func(string) error) {
		if mean > 0 {
			life := time.Duration(min(m.random.ExpFloat64()*float64(mean), math.MaxInt64/2))
			// The error is that of a VM that was given back meanwhile.
			v.timers = append(v.timers, m.opts.Clock.AfterFunc(life, func() { _ = call(id) }))
		}
	}
	end(v.kind.sold.MeanTimeToFailure, m.Fail)
	if v.kind.Spot {
		end(v.kind.sold.Spot.MeanTimeToReclaim, m.Reclaim)
	}
}

// GiveBack ends a sale. An unknown VM is no error.
func (m *Market) GiveBack(id string) {
	m.mu.Lock()
	v := m.vms[id]
	if v != nil {
		delete(m.vms, id)
		v.stop()
		v.kind.ours--
	}
	m.mu.Unlock()
	if v != nil {
		m.events.MarketChanged()
	}
}

// Fail lets a VM fail at once.
func (m *Market) Fail(id string) error {
	if _, err := m.sale(id); err != nil {
		return err
	}
	m.events.VMFailed(id)
	m.GiveBack(id)
	return nil
}

// Reclaim reclaims a spot VM with its kind's notice.
func (m *Market) Reclaim(id string) error {
	v, err := m.sale(id)
	if err != nil {
		return err
	}
	if !v.kind.Spot {
		return fmt.Errorf("VM %s, %v: %w: only spot VMs are reclaimed", id, v.kind.Kind, ErrNotSpot)
	}
	m.events.VMReclaimed(id, time.Duration(v.kind.sold.Spot.Notice))
	return nil
}

func (m *Market) sale(id string) (*sale, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.vms[id]
	switch {
	case m.closed:
		return nil, ErrClosed
	case v == nil:
		return nil, fmt.Errorf("VM %.100q: %w", id, ErrUnknownVM)
	}
	return v, nil
}

// Change sets a kind's price or availability, which no longer changes by itself then. nil
// changes nothing.
type Change struct {
	Price     *plan.Price
	Available *int // to be sold; negative: any number
}

// Change changes all the kinds or, with an error, none.
func (m *Market) Change(kinds []Kind, to Change) error {
	switch {
	case to.Price != nil && (*to.Price < 0 || *to.Price > plan.MaxPrice):
		return fmt.Errorf("price %v: want $0.00/h to %v", *to.Price, plan.MaxPrice)
	case to.Available != nil && *to.Available > maxCount:
		return fmt.Errorf("available %d: want at most %d", *to.Available, maxCount)
	}
	if err := m.change(kinds, to); err != nil {
		return err
	}
	m.events.MarketChanged()
	return nil
}

func (m *Market) change(kinds []Kind, to Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*kind
	for _, at := range kinds {
		k, err := m.find(at)
		if err != nil {
			return err
		}
		found = append(found, k)
	}
	for _, k := range found {
		k.fixed = true
		if to.Price != nil {
			k.price = *to.Price
		}
		if n := to.Available; n != nil {
			k.others, k.limit = 0, -1
			if *n >= 0 {
				k.limit = *n + k.ours
			}
		}
	}
	return nil
}
