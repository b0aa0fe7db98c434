package manager

import (
	"context"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// TestControl runs the scripts in testdata/control against a served manager with cache
// servers in this process. Random ids are printed as c1, c2, … and v1, v2, … in order of
// appearance.
//
//	manager [pool] [impatient] [memory=SIZE] [vm-memory=SIZE]
//	                                               start afresh; pool: no allocator;
//	                                               impatient: with silent VMs;
//	                                               caches have a lease of a minute
//	server id=NAME memory=SIZE [cores=N]           a server that registers itself
//	launches OUTCOME...                            outcomes of the next launches
//	allocate capacity=SIZE [region=SIZE] [s=N c=N b=N q=N] [transport=NAME] [request=ID]
//	deallocate cache=cN
//	reallocate cache=cN regions=N [present] [voluntary] [avoid=(ID,…)] [s=N c=N b=N q=N]
//	connect cache=cN                               its client connects the last grants; it will release
//	                                               what it settles without
//	settle cache=cN capacity=SIZE [s=N c=N b=N q=N]  and below, a line each: GRANT REGIONS
//	renew cache=cN
//	reclaim vm=ID notice=DURATION                  by the operator
//	spot vm=vN notice=DURATION                     by the allocator
//	later by=DURATION                              advances the clock, and runs the monitor
//	kill vm=vN                                     a launched VM crashes
//	silence [but=(ID,…)]                           servers except these miss their heartbeats
//	heartbeat id=NAME
//	explain cache=cN                               the decisions about its VMs
//	market type=NAME [spot] [price=DOLLARS] [available=N] | fail=vN | reclaim=vN
//	offers
//	consider                                       considers moves of caches
//	fill                                           fills the warm pools
//	watch cache=cN n=N                             the first n events
//	describe
func TestControl(t *testing.T) {
	datadriven.Walk(t, "testdata/control", func(t *testing.T, path string) {
		// A manager started by a later command is closed with the script; those
		// before it, too.
		c := &control{t: t, ctx: testContext(t)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := c.run(d)
			if err != nil {
				return c.anonymous(fmt.Sprintf("%v\n", err))
			}
			if out == "" {
				return "ok\n"
			}
			return c.anonymous(out)
		})
	})
}

// handClock is a clock that only advance moves.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

// frozen is a market's clock that does not move: its timers never fire.
type frozen struct{ now time.Time }

func (f frozen) Now() time.Time                              { return f.now }
func (f frozen) AfterFunc(time.Duration, func()) clock.Timer { return f }
func (frozen) Stop() bool                                    { return true }

type control struct {
	t         *testing.T
	ctx       context.Context
	manager   *Manager
	client    access.Client
	allocator *scripted
	clock     *handClock
	silences  int

	names []string // real, shown, real, shown…
	real  map[string]string
	nodes map[string]*node.Node

	granted map[string][]*managerv1.Grant      // by cache: those of the last answer
	lent    map[lease]*serverv1.ReleaseRequest // to release a part of connected grants
	urls    map[lease]string                   // of their servers
}

// name records the name that a random id has in the script.
func (c *control) name(kind, id string) {
	for _, n := range c.names {
		if n == id {
			return
		}
	}
	count := 1
	for shown := range c.real {
		if strings.HasPrefix(shown, kind) {
			count++
		}
	}
	shown := fmt.Sprintf("%s%d", kind, count)
	c.real[shown] = id
	c.names = append(c.names, id, shown)
}

// anonymous replaces random ids, including those of VMs whose launch failed.
func (c *control) anonymous(s string) string {
	return unseenVM.ReplaceAllString(strings.NewReplacer(c.names...).Replace(s), "vm-?")
}

var unseenVM = regexp.MustCompile(`vm-[A-Z2-7]{26}`)

func (c *control) run(d *datadriven.TestData) (string, error) {
	if c.manager != nil {
		c.manager.led().rest(c.t)
	}
	switch d.Cmd {
	case "manager":
		return "", c.start(d)
	case "server":
		return "", c.server(d)
	case "launches":
		c.allocator.expect(strings.Fields(d.Input)...)
		return "", nil
	case "allocate":
		return c.allocate(d)
	case "deallocate":
		answer, err := c.client.Deallocate(c.ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: c.id(d, "cache")}))
		if err == nil && !answer.Msg.GetExisted() {
			return "there was none\n", nil
		}
		return "", err
	case "kill":
		if !c.allocator.Kill(c.id(d, "vm")) {
			return "no such VM\n", nil
		}
		return "", nil
	case "silence":
		// The caches' clients are alive, and the clock of the leases does not move.
		return "", c.silence(d)
	case "reallocate":
		return c.reallocate(d)
	case "connect":
		return "", c.connect(d)
	case "settle":
		return "", c.settle(d)
	case "renew":
		r, err := c.client.Renew(c.ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: c.id(d, "cache")}))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("for %v\n", time.Duration(r.Msg.GetLeaseMs())*time.Millisecond), nil
	case "reclaim":
		return c.reclaim(d)
	case "spot":
		c.allocator.host.Reclaimed(c.id(d, "vm"), c.clock.read().Add(c.duration(d, "notice")), "spot price")
		return "", nil
	case "later":
		c.manager.led().expireAt(c.clock.advance(c.duration(d, "by")))
		return "", nil
	case "heartbeat":
		id := c.id(d, "id")
		_, err := c.client.Heartbeat(c.ctx, connect.NewRequest(&managerv1.HeartbeatRequest{VmId: id, Start: starts(c.manager, id), FreeMemory: c.nodes[id].VM().Free}))
		return "", err
	case "watch":
		return c.watch(d)
	case "explain":
		return c.explain(d)
	case "market":
		return "", c.market(d)
	case "offers":
		return c.offers()
	case "consider":
		c.manager.led().considerMoves(c.ctx)
		return "", nil
	case "fill":
		for _, p := range c.manager.opts.Warm {
			if err := c.manager.led().fillPool(c.ctx, p); err != nil {
				return "", err
			}
		}
		return "", nil
	case "describe":
		return c.describe()
	}
	return "", fmt.Errorf("unknown command %s", d.Cmd)
}

func (c *control) id(d *datadriven.TestData, key string) string {
	var shown string
	d.ScanArgs(c.t, key, &shown)
	if id, ok := c.real[shown]; ok {
		return id
	}
	return shown
}

func (c *control) size(d *datadriven.TestData, key string) uint64 {
	var text string
	d.MaybeScanArgs(c.t, key, &text)
	if text == "" {
		return 0
	}
	size, err := units.ParseSize(text)
	if err != nil {
		d.Fatalf(c.t, "%v", err)
	}
	return uint64(size)
}

func (c *control) start(d *datadriven.TestData) error {
	c.real, c.names, c.nodes = make(map[string]string), nil, make(map[string]*node.Node)
	c.granted, c.lent, c.urls = make(map[string][]*managerv1.Grant), make(map[lease]*serverv1.ReleaseRequest), make(map[lease]string)
	c.clock = &handClock{now: time.Unix(1_000_000, 0)}
	opts := Options{Transport: "mem", VMMemory: c.size(d, "vm-memory"), LaunchTimeout: testTimeout, Lease: time.Minute, now: c.clock.read}
	if d.HasArg("impatient") {
		opts.LaunchTimeout = 2 * time.Second
	}
	switch {
	case d.HasArg("menu"):
		return c.startMenu(d, opts)
	case !d.HasArg("pool"):
		c.allocator = newScripted(c.t, c.size(d, "memory"))
		opts.Allocator = c.allocator
	}
	c.manager, c.client = serve(c.t, opts)
	return nil
}

func (c *control) server(d *datadriven.TestData) error {
	opts := node.Options{ID: c.id(d, "id"), Memory: c.size(d, "memory"), Transport: "mem", Logger: quiet()}
	d.MaybeScanArgs(c.t, "cores", &opts.Cores)
	if old := c.nodes[opts.ID]; old != nil {
		if err := old.Close(); err != nil {
			return err
		}
	}
	n, err := node.Start(opts)
	if err != nil {
		return err
	}
	c.nodes[opts.ID] = n
	c.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			c.t.Error(err)
		}
	})
	_, err = n.Register(c.ctx, c.client)
	return err
}

func (c *control) allocate(d *datadriven.TestData) (string, error) {
	req := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: c.size(d, "capacity"), RegionSize: c.size(d, "region")}
	d.MaybeScanArgs(c.t, "request", &req.RequestId)
	d.MaybeScanArgs(c.t, "transport", &req.Transport)
	d.MaybeScanArgs(c.t, "region-of", &req.CloudRegion)
	if d.HasArg("duration") {
		req.DurationSeconds = int64(c.duration(d, "duration").Seconds())
	}
	req.Configuration = c.configuration(d)
	r, err := c.client.Allocate(c.ctx, connect.NewRequest(req))
	if err != nil {
		return "", err
	}
	c.name("c", r.Msg.GetCacheId())
	c.granted[r.Msg.GetCacheId()] = r.Msg.GetGrants()
	cache := &managerv1.Cache{Id: r.Msg.GetCacheId(), RegionSize: r.Msg.GetRegionSize(), Configuration: r.Msg.GetConfiguration(), Grants: r.Msg.GetGrants(), Capacity: req.Capacity}
	c.nameVMs(cache.Grants)
	return describeCache(cache), nil
}

func (c *control) nameVMs(grants []*managerv1.Grant) {
	for _, s := range grants {
		if strings.HasPrefix(s.GetVm().GetId(), launchedPrefix) {
			c.name("v", s.GetVm().GetId())
		}
	}
}

func (c *control) configuration(d *datadriven.TestData) *managerv1.Configuration {
	if !d.HasArg("c") {
		return nil
	}
	conf := &managerv1.Configuration{}
	d.ScanArgs(c.t, "c", &conf.ClientThreads)
	d.ScanArgs(c.t, "s", &conf.ServerThreads)
	d.ScanArgs(c.t, "b", &conf.BatchSize)
	d.ScanArgs(c.t, "q", &conf.QueueDepth)
	return conf
}

func (c *control) duration(d *datadriven.TestData, key string) time.Duration {
	var text string
	d.ScanArgs(c.t, key, &text)
	v, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(c.t, "%v", err)
	}
	return v
}

func (c *control) reallocate(d *datadriven.TestData) (string, error) {
	req := &managerv1.ReallocateRequest{Change: nextChange(), CacheId: c.id(d, "cache"), PreferPresent: d.HasArg("present"), Voluntary: d.HasArg("voluntary"), Configuration: c.configuration(d)}
	d.ScanArgs(c.t, "regions", &req.Regions)
	for _, arg := range d.CmdArgs {
		if arg.Key == "avoid" {
			for _, shown := range arg.Vals {
				if id, ok := c.real[shown]; ok {
					shown = id
				}
				req.AvoidVms = append(req.AvoidVms, shown)
			}
		}
	}
	r, err := c.client.Reallocate(c.ctx, connect.NewRequest(req))
	if err != nil {
		return "", err
	}
	c.nameVMs(r.Msg.GetGrants())
	c.granted[req.CacheId] = r.Msg.GetGrants()
	return describeShares(r.Msg.GetGrants()), nil
}

func (c *control) connect(d *datadriven.TestData) error {
	for _, g := range c.granted[c.id(d, "cache")] {
		is := lease{g.GetTerms().GetCacheId(), g.GetId()}
		c.urls[is] = g.GetVm().GetControlUrl()
		r, err := c.serverAt(c.urls[is]).Connect(c.ctx, connect.NewRequest(&serverv1.ConnectRequest{
			Terms: g.GetTerms(), Token: g.GetToken(), Configuration: DefaultConfiguration(),
		}))
		if err != nil {
			return err
		}
		c.lent[is] = &serverv1.ReleaseRequest{CacheId: is.cache, Grant: is.grant, Ticket: r.Msg.GetTicket()}
	}
	return nil
}

func (c *control) serverAt(url string) serverv1connect.CacheServerServiceClient {
	return serverv1connect.NewCacheServerServiceClient(api.HTTPClient, url)
}

func (c *control) settle(d *datadriven.TestData) error {
	req := &managerv1.SettleRequest{Change: nextChange(), CacheId: c.id(d, "cache"), Capacity: c.size(d, "capacity"), Configuration: c.configuration(d)}
	for line := range strings.Lines(d.Input) {
		s := &managerv1.SettledGrant{}
		if _, err := fmt.Sscan(line, &s.Id, &s.Regions); err != nil {
			d.Fatalf(c.t, "%q: %v", line, err)
		}
		req.Grants = append(req.Grants, s)
		is := lease{req.CacheId, s.Id}
		if release := c.lent[is]; release != nil {
			release.Keep = s.Regions
			if _, err := c.serverAt(c.urls[is]).Release(c.ctx, connect.NewRequest(release)); err != nil {
				return err
			}
		}
	}
	_, err := c.client.Settle(c.ctx, connect.NewRequest(req))
	return err
}

func (c *control) reclaim(d *datadriven.TestData) (string, error) {
	r, err := c.client.Reclaim(c.ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: c.id(d, "vm"), NoticeMs: c.duration(d, "notice").Milliseconds()}))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("in %v\n", time.UnixMilli(r.Msg.GetDeadlineUnixMs()).Sub(c.clock.read())), nil
}

func describeCache(ca *managerv1.Cache) string {
	var b strings.Builder
	conf := ca.GetConfiguration()
	fmt.Fprintf(&b, "cache %s: %v in regions of %v, c=%d s=%d b=%d q=%d\n", ca.GetId(), units.Size(ca.GetCapacity()), units.Size(ca.GetRegionSize()),
		conf.GetClientThreads(), conf.GetServerThreads(), conf.GetBatchSize(), conf.GetQueueDepth())
	return b.String() + describeShares(ca.GetGrants())
}

func describeShares(grants []*managerv1.Grant) string {
	var b strings.Builder
	for _, s := range grants {
		fmt.Fprintf(&b, "  %s: %d on %s", s.GetId(), s.GetRegions(), s.GetVm().GetId())
		if s.GetCores() > 0 {
			fmt.Fprintf(&b, ", %d cores", s.GetCores())
		}
		if s.GetPriceMicros() > 0 {
			fmt.Fprintf(&b, ", %v", plan.Price(s.GetPriceMicros()))
		}
		if s.GetPending() {
			b.WriteString(", pending")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (c *control) watch(d *datadriven.TestData) (string, error) {
	var n int
	d.ScanArgs(c.t, "n", &n)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := c.client.Watch(ctx, connect.NewRequest(&managerv1.WatchRequest{CacheId: c.id(d, "cache")}))
	if err != nil {
		return "", err
	}
	defer func() {
		cancel()
		_ = stream.Close() // ends with the context's error
	}()
	var b strings.Builder
	for ; n > 0; n-- {
		if !stream.Receive() {
			return b.String(), stream.Err()
		}
		e := stream.Msg()
		fmt.Fprintf(&b, "%d %v %s (%s)\n", e.GetSequence(), e.GetKind(), strings.Join(append(e.GetVmIds(), e.GetVmId()), " "), e.GetReason())
	}
	return b.String(), nil
}

func (c *control) describe() (string, error) {
	r, err := c.client.Describe(c.ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		return "", err
	}
	var caches []string
	for _, ca := range r.Msg.GetCaches() {
		caches = append(caches, c.anonymous(describeCache(ca)))
	}
	sort.Strings(caches)
	var b strings.Builder
	b.WriteString(strings.Join(caches, ""))
	for _, v := range r.Msg.GetVms() {
		state := "healthy"
		if v.GetLeaving() {
			state = fmt.Sprintf("leaving in %v", time.UnixMilli(v.GetDeadlineUnixMs()).Sub(c.clock.read()))
		}
		if v.GetSuspected() {
			state = "suspected"
		}
		if !v.GetHealthy() {
			state = "failed"
		}
		fmt.Fprintf(&b, "vm %s: %v of %v free, %d cores, %s\n", v.GetId(), units.Size(v.GetFreeMemory()), units.Size(v.GetMemory()), v.GetCores(), state)
	}
	if b.Len() == 0 {
		return "nothing\n", nil
	}
	return b.String(), nil
}

// startMenu starts a manager with a market that changes only on command. The clock of
// prices and lifetimes does not move.
func (c *control) startMenu(d *datadriven.TestData, opts Options) error {
	m, err := menu.Parse([]byte(d.Input))
	if err != nil {
		return err
	}
	a, err := allocator.NewInProcess(allocator.InProcessOptions{
		Memory: c.size(d, "memory"), Menu: &m, Market: menu.Options{Clock: frozen{c.clock.read()}, Step: -1}, Logger: quiet(),
	})
	if err != nil {
		return err
	}
	opts.Allocator = a
	opts.Economy = Economy{Every: -1, Dwell: 20 * time.Second}
	opts.Provision, opts.NoticeMargin, opts.MigrationRate = 10*time.Second, 2*time.Second, 1<<20
	if d.HasArg("warm") {
		p := WarmPool{Count: 1}
		d.ScanArgs(c.t, "warm", &p.Type)
		opts.Warm = []WarmPool{p}
	}
	c.manager, c.client = serve(c.t, opts)
	return nil
}

func (c *control) explain(d *datadriven.TestData) (string, error) {
	r, err := c.client.DescribeCache(c.ctx, connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: c.id(d, "cache")}))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	ca := r.Msg.GetCache()
	fmt.Fprintf(&b, "%v at distance %d\n", plan.Price(ca.GetPriceMicros()), ca.GetDistance())
	for _, decision := range r.Msg.GetDecisions() {
		fmt.Fprintf(&b, "%s: %v\n", decision.GetWhat(), plan.Price(decision.GetPriceMicros()))
		for _, s := range decision.GetSites() {
			fmt.Fprintf(&b, "  distance %d: %s\n", s.GetDistance(), s.GetReason())
		}
		for _, v := range decision.GetVerdicts() {
			fmt.Fprintf(&b, "  %s, %v: %s\n", v.GetName(), plan.Price(v.GetPriceMicros()), v.GetReason())
		}
	}
	return b.String(), nil
}

func (c *control) market(d *datadriven.TestData) error {
	req := &managerv1.ChangeMarketRequest{Spot: d.HasArg("spot")}
	d.MaybeScanArgs(c.t, "type", &req.Type)
	if d.HasArg("price") {
		var dollars string
		d.ScanArgs(c.t, "price", &dollars)
		f, err := strconv.ParseFloat(dollars, 64)
		if err != nil {
			return err
		}
		req.PriceMicros = proto.Int64(int64(plan.Dollars(f)))
	}
	if d.HasArg("available") {
		n := 0
		d.ScanArgs(c.t, "available", &n)
		req.Available = proto.Int32(int32(n))
	}
	if d.HasArg("fail") {
		req.FailVm = c.id(d, "fail")
	}
	if d.HasArg("reclaim") {
		req.ReclaimVm = c.id(d, "reclaim")
	}
	_, err := c.client.ChangeMarket(c.ctx, connect.NewRequest(req))
	return err
}

func (c *control) offers() (string, error) {
	r, err := c.client.ListOffers(c.ctx, connect.NewRequest(&managerv1.ListOffersRequest{}))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, o := range r.Msg.GetOffers() {
		name := plan.Offer{Type: o.GetType(), Spot: o.GetSpot()}.Name()
		fmt.Fprintf(&b, "%s: %v, %d cores, %v, %d available, %d warm\n", name, units.Size(o.GetMemory()), o.GetCores(), plan.Price(o.GetPriceMicros()), o.GetAvailable(), o.GetWarm())
	}
	return b.String(), nil
}

// silence makes servers miss their heartbeats.
func (c *control) silence(d *datadriven.TestData) error {
	c.silences++ // the next silence must be later than the heartbeats postponed here
	now := c.clock.read().Add(2 * c.manager.opts.Silence * time.Duration(c.silences))
	var but []string
	d.MaybeScanArgs(c.t, "but", &but)
	for _, id := range but {
		if _, err := c.manager.led().state.heartbeat(id, starts(c.manager, id), 0, func() time.Time { return now.Add(c.manager.opts.Silence) }); err != nil {
			return err
		}
	}
	lost, _ := c.manager.led().listen(now)
	for _, l := range lost {
		c.manager.led().fail(l.vm.id, l.vm, l.reason)
	}
	return nil
}
