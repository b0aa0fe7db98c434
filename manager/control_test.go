package manager

import (
	"context"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/cockroachdb/datadriven"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
)

// TestControl runs the scripts in testdata/control against a served manager with
// cache servers in this process. Random ids are printed as c1, c2, … and v1, v2,
// … in the order of their coming.
//
//	manager [pool] [impatient] [memory=SIZE] [vm-memory=SIZE]
//	                                               start afresh; pool: no allocator;
//	                                               impatient: with silent VMs;
//	                                               caches have a lease of a minute
//	server id=NAME memory=SIZE [cores=N]           a server that registers itself
//	launches OUTCOME...                            how the next launches go
//	allocate capacity=SIZE [region=SIZE] [s=N c=N b=N q=N] [transport=NAME]
//	deallocate cache=cN
//	reallocate cache=cN regions=N [present] [avoid=(ID,…)] [s=N c=N b=N q=N]
//	settle cache=cN capacity=SIZE [s=N c=N b=N q=N]  and below, a line each: GRANT REGIONS
//	renew cache=cN
//	reclaim vm=ID notice=DURATION                  by the operator
//	spot vm=vN notice=DURATION                     by the allocator
//	later by=DURATION                              the clock goes on, and the monitor looks
//	kill vm=vN                                     a launched VM crashes
//	silence                                        every server misses its heartbeats
//	heartbeat id=NAME
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

// clock goes on when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

type control struct {
	t         *testing.T
	ctx       context.Context
	manager   *Manager
	client    Client
	allocator *scripted
	clock     *clock

	names []string // real, shown, real, shown…
	real  map[string]string
	nodes map[string]*Node
}

// name remembers what a random id is called in the script.
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

// anonymous also hides the ids of VMs that were launched in vain.
func (c *control) anonymous(s string) string {
	return unseenVM.ReplaceAllString(strings.NewReplacer(c.names...).Replace(s), "vm-?")
}

var unseenVM = regexp.MustCompile(`vm-[A-Z2-7]{26}`)

func (c *control) run(d *datadriven.TestData) (string, error) {
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
		_, err := c.client.Deallocate(c.ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: c.id(d, "cache")}))
		return "", err
	case "kill":
		if !c.allocator.Kill(c.id(d, "vm")) {
			return "no such VM\n", nil
		}
		return "", nil
	case "silence":
		// The caches' clients are there, and the clock of the leases stands still.
		for _, l := range c.manager.catalog.lost(c.clock.read().Add(2*c.manager.opts.Silence), c.manager.opts.Silence) {
			c.manager.fail(l.vm, l.reason)
		}
		return "", nil
	case "reallocate":
		return c.reallocate(d)
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
		c.manager.expire(c.clock.advance(c.duration(d, "by")))
		return "", nil
	case "heartbeat":
		_, err := c.client.Heartbeat(c.ctx, connect.NewRequest(&managerv1.HeartbeatRequest{VmId: c.id(d, "id")}))
		return "", err
	case "watch":
		return c.watch(d)
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
	c.real, c.names, c.nodes = make(map[string]string), nil, make(map[string]*Node)
	c.clock = &clock{now: time.Unix(1_000_000, 0)}
	opts := Options{Transport: "mem", VMMemory: c.size(d, "vm-memory"), LaunchTimeout: testTimeout, Lease: time.Minute, now: c.clock.read}
	if d.HasArg("impatient") {
		opts.LaunchTimeout = 50 * time.Millisecond
	}
	if !d.HasArg("pool") {
		c.allocator = newScripted(c.t, c.size(d, "memory"))
		opts.Allocator = c.allocator
	}
	c.manager, c.client = serve(c.t, opts)
	return nil
}

func (c *control) server(d *datadriven.TestData) error {
	opts := NodeOptions{ID: c.id(d, "id"), Memory: c.size(d, "memory"), Transport: "mem", Logger: quiet()}
	d.MaybeScanArgs(c.t, "cores", &opts.Cores)
	if old := c.nodes[opts.ID]; old != nil {
		if err := old.Close(); err != nil {
			return err
		}
	}
	n, err := StartNode(opts)
	if err != nil {
		return err
	}
	c.nodes[opts.ID] = n
	c.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			c.t.Error(err)
		}
	})
	_, err = n.register(c.ctx, c.client)
	return err
}

func (c *control) allocate(d *datadriven.TestData) (string, error) {
	req := &managerv1.AllocateRequest{Capacity: c.size(d, "capacity"), RegionSize: c.size(d, "region")}
	d.MaybeScanArgs(c.t, "transport", &req.Transport)
	req.Configuration = c.configuration(d)
	r, err := c.client.Allocate(c.ctx, connect.NewRequest(req))
	if err != nil {
		return "", err
	}
	c.name("c", r.Msg.GetCacheId())
	cache := &managerv1.Cache{Id: r.Msg.GetCacheId(), RegionSize: r.Msg.GetRegionSize(), Configuration: r.Msg.GetConfiguration(), Shares: r.Msg.GetShares(), Capacity: req.Capacity}
	c.nameVMs(cache.Shares)
	return describeCache(cache), nil
}

func (c *control) nameVMs(shares []*managerv1.VmShare) {
	for _, s := range shares {
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
	req := &managerv1.ReallocateRequest{CacheId: c.id(d, "cache"), PreferPresent: d.HasArg("present"), Configuration: c.configuration(d)}
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
	c.nameVMs(r.Msg.GetShares())
	return describeShares(r.Msg.GetShares()), nil
}

func (c *control) settle(d *datadriven.TestData) error {
	req := &managerv1.SettleRequest{CacheId: c.id(d, "cache"), Capacity: c.size(d, "capacity"), Configuration: c.configuration(d)}
	for line := range strings.Lines(d.Input) {
		s := &managerv1.SettledShare{}
		if _, err := fmt.Sscan(line, &s.Grant, &s.Regions); err != nil {
			d.Fatalf(c.t, "%q: %v", line, err)
		}
		req.Shares = append(req.Shares, s)
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
	return b.String() + describeShares(ca.GetShares())
}

func describeShares(shares []*managerv1.VmShare) string {
	var b strings.Builder
	for _, s := range shares {
		fmt.Fprintf(&b, "  %s: %d on %s", s.GetGrant(), s.GetRegions(), s.GetVm().GetId())
		if s.GetCores() > 0 {
			fmt.Fprintf(&b, ", %d cores", s.GetCores())
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
		_ = stream.Close() // it ends with the context's error
	}()
	var b strings.Builder
	for ; n > 0; n-- {
		if !stream.Receive() {
			return b.String(), stream.Err()
		}
		e := stream.Msg()
		fmt.Fprintf(&b, "%d %v %s (%s)\n", e.GetSequence(), e.GetKind(), e.GetVmId(), e.GetReason())
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
