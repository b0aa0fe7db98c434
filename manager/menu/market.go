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

// Options say how a market goes on.
type Options struct {
	// CloudRegion is the default for who names none. Default: the menu's first.
	CloudRegion string
	// Clock is that of prices and of VMs' lives; notices are counted by whoever is
	// told of them. Default: the system's.
	Clock clock.Clock
	// Seed makes what happens by chance the same each time.
	Seed uint64
	// Step is how often prices and what is left change. Default: 1 min; negative:
	// never.
	Step time.Duration
}

// Events is who hears of what happens. Its methods are called without locks, from
// goroutines of the clock or of whoever calls the market.
type Events interface {
	// VMReclaimed says that a VM is taken back when the notice is up.
	VMReclaimed(id string, notice time.Duration)
	// VMFailed says that a VM is gone.
	VMFailed(id string)
	// MarketChanged says that something has become cheaper, or is there again.
	MarketChanged()
}

// Kind tells what is sold.
type Kind struct {
	Type        string `json:"type"`
	CloudRegion string `json:"cloud_region"`
	Distance    int    `json:"distance"`
	Spot        bool   `json:"spot"`
}

// String names the kind as people call it; distance 0 stands for any.
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
	spot := func(k Kind) int {
		if k.Spot {
			return 1
		}
		return 0
	}
	return cmp.Or(strings.Compare(k.Type, o.Type), strings.Compare(k.CloudRegion, o.CloudRegion),
		cmp.Compare(k.Distance, o.Distance), cmp.Compare(spot(k), spot(o)))
}

// Errors of a market. [RegionError] is another.
var (
	ErrUnknownKind = errors.New("not on the menu")
	ErrUnknownVM   = errors.New("no such VM was sold")
	ErrSoldOut     = errors.New("sold out")
	ErrClosed      = errors.New("the market is closed")
	ErrNotSpot     = errors.New("no spot VM")
)

// RegionError names a cloud region that is not on the menu, and those that are.
type RegionError struct {
	Asked string
	Known []string
}

func (e *RegionError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("cloud region %.100q: there are no cloud regions here", e.Asked)
	}
	return fmt.Sprintf("cloud region %.100q: want one of %s", e.Asked, strings.Join(e.Known, ", "))
}

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

// kind is one thing that is sold. Guarded by Market.mu; Kind, typ, sold do not
// change.
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

// NewMarket opens a market. It is closed by Close. The menu is checked as [Parse] does.
func NewMarket(m Menu, opts Options, events Events) (*Market, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("menu: %w", err)
	}
	opts.CloudRegion = cmp.Or(opts.CloudRegion, m.Regions()[0])
	if !slices.Contains(m.Regions(), opts.CloudRegion) {
		return nil, &RegionError{opts.CloudRegion, m.Regions()}
	}
	if opts.Clock == nil {
		opts.Clock = clock.Real()
	}
	opts.Step = cmp.Or(opts.Step, time.Minute)
	k := &Market{
		menu: m, opts: opts, events: events, vms: make(map[string]*sale),
		random: rand.New(rand.NewPCG(opts.Seed, 0)),
	}
	for _, t := range m.Types {
		for _, s := range t.Sold {
			at := Kind{t.Name, s.CloudRegion, s.Distance, false}
			k.kinds = append(k.kinds, &kind{Kind: at, typ: t, sold: s, price: plan.Dollars(s.Price), limit: limit(s.Available)})
			if s.Spot != nil {
				at.Spot = true
				k.kinds = append(k.kinds, &kind{Kind: at, typ: t, sold: s, price: plan.Dollars(s.Spot.Price), limit: limit(s.Spot.Available)})
			}
		}
	}
	slices.SortFunc(k.kinds, func(a, b *kind) int { return a.compare(b.Kind) })
	k.schedule()
	return k, nil
}

func limit(available *int) int {
	if available == nil {
		return -1
	}
	return *available
}

// Close ends what would still happen.
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

// HasSpot says whether the market sells VMs that can be taken back.
func (m *Market) HasSpot() bool {
	return slices.ContainsFunc(m.kinds, func(k *kind) bool { return k.Spot })
}

// CloudRegion is the default.
func (m *Market) CloudRegion() string { return m.opts.CloudRegion }

// Offers lists what a cloud region sells now, what is sold out included. An empty
// region is the default; one that is not on the menu is a [*RegionError].
func (m *Market) Offers(region string) ([]plan.Offer, error) {
	region = cmp.Or(region, m.opts.CloudRegion)
	if !slices.Contains(m.menu.Regions(), region) {
		return nil, &RegionError{region, m.menu.Regions()}
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

// left is how many can be sold; negative: any number. Called under mu.
func (k *kind) left() int {
	if k.limit < 0 {
		return -1
	}
	return max(0, k.limit-k.ours-k.others)
}

// find is called under mu.
func (m *Market) find(at Kind) (*kind, error) {
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
	if known := m.menu.Regions(); !slices.Contains(known, at.CloudRegion) {
		return nil, &RegionError{at.CloudRegion, known}
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

// Sell sells a VM. From then on it may be reclaimed, and fail.
func (m *Market) Sell(id string, at Kind) error {
	at.CloudRegion = cmp.Or(at.CloudRegion, m.opts.CloudRegion)
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(at)
	switch {
	case err == nil && m.vms[id] != nil:
		return fmt.Errorf("VM %s was sold already", id)
	case err == nil && !m.closed && k.left() == 0:
		return fmt.Errorf("%v: %w", at, ErrSoldOut)
	}
	return m.own(id, k, err)
}

// Resume is Sell for a VM that an earlier market has sold: what is left does not
// matter. One that this market knows is no error.
func (m *Market) Resume(id string, at Kind) error {
	at.CloudRegion = cmp.Or(at.CloudRegion, m.opts.CloudRegion)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.vms[id] != nil {
		return nil
	}
	k, err := m.find(at)
	return m.own(id, k, err)
}

// own makes a VM of a kind ours, if that was found. Called under mu.
func (m *Market) own(id string, k *kind, err error) error {
	switch {
	case err != nil:
		return err
	case m.closed:
		return ErrClosed
	}
	k.ours++
	m.live(id, k)
	return nil
}

// live begins a VM's life. Called under mu.
func (m *Market) live(id string, k *kind) {
	v := &sale{kind: k}
	m.vms[id] = v
	end := func(mean Duration, call func(string) error) {
		if mean > 0 {
			life := time.Duration(min(m.random.ExpFloat64()*float64(mean), math.MaxInt64/2))
			// A VM that was given back meanwhile is not there any more.
			v.timers = append(v.timers, m.opts.Clock.AfterFunc(life, func() { _ = call(id) }))
		}
	}
	end(k.sold.MeanTimeToFailure, m.Fail)
	if k.Spot {
		end(k.sold.Spot.MeanTimeToReclaim, m.Reclaim)
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

// Fail ends a VM at once.
func (m *Market) Fail(id string) error {
	if _, err := m.sale(id); err != nil {
		return err
	}
	m.events.VMFailed(id)
	m.GiveBack(id)
	return nil
}

// Reclaim takes a spot VM back after its kind's notice.
func (m *Market) Reclaim(id string) error {
	v, err := m.sale(id)
	if err != nil {
		return err
	}
	if !v.kind.Spot {
		return fmt.Errorf("VM %s, %v: %w: it is not taken back, but it may fail", id, v.kind.Kind, ErrNotSpot)
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

// Change is what is set by hand of a kind, which wanders no more then. nil leaves it as
// it is.
type Change struct {
	Price     *plan.Price
	Available *int // to be sold; negative: any number
}

// Change changes kinds alike: all of them or, with an error, none.
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
		at.CloudRegion = cmp.Or(at.CloudRegion, m.opts.CloudRegion)
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
