package manager

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// grant is one loan of a VM's memory to a cache. Guarded by state.mu; id, cache, vm,
// regionSize, launch and freed do not change.
//
//	reserved ──granted──► lent ──leave──► leaving ──taken back──► gone
//	    └──────────────────leave──────────────────────────────────►┘
//
// A reserved grant belongs to a request that waits for VMs; no client knows it, and it has no
// record. A lent grant belongs to a cache. A leaving one belongs to the reconciler, which
// tells the server until it has taken the memory back; so long the memory stays reserved.
type grant struct {
	stored
	id         string // unique within the cache
	cache      string
	vm         *vm
	regions    uint32 // that its cache has
	lends      uint32 // that its server may lend: no fewer than regions, see shrunk
	regionSize uint64 // bytes
	cores      uint32
	launch     bool   // the VM was launched for it
	change     uint64 // change number of the Reallocate that gave it; 0: none
	phase      phase
	refused    bool          // its server was told, and has not taken it back
	freed      chan struct{} // closed when the grant is gone, or refused
	looked     chan struct{} // see endLook; nil: nobody waits for what the server lends of the shrunk grant
}

// endLook tells who waits for it that the server of a shrunk grant was asked what it lends, or need not
// be asked any more. Called under mu.
func (g *grant) endLook() {
	if g.looked != nil {
		close(g.looked)
		g.looked = nil
	}
}

// phase is the phase of a grant.
type phase uint8

const (
	reserved phase = iota
	lent
	leaving
	gone
)

// bytes is the memory that a grant takes from its VM.
func (g *grant) bytes() uint64 { return uint64(g.lends) * g.regionSize }

// grantID returns the id of the grant of a number, of those that its cache was ever given.
func grantID(number uint64) string { return "g" + strconv.FormatUint(number, 10) }

// grantNumber returns the number of the grant of an id; 0: it has none.
func grantNumber(id string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(id, "g"), 10, 64)
	return n
}

// reserve reserves the memory of parts for a cache. Called under mu.
func (c *state) reserve(ca *cache, d demand, parts []part) []*grant {
	var grants []*grant
	for _, p := range parts {
		ca.given++
		g := &grant{
			id: grantID(ca.given), cache: ca.id, vm: p.vm, launch: p.vm == nil,
			regions: p.regions, lends: p.regions, regionSize: d.regionSize, cores: p.cores, freed: make(chan struct{}),
		}
		if g.launch {
			g.vm = c.enter(&vm{id: newVMID(), launched: true, transport: d.transport, entered: time.Now(), VM: ordered(p.offer, d.cloudRegion)})
		}
		g.vm.hold(g)
		if !ca.own {
			g.vm.visits++
		}
		c.list(g.vm)
		grants = append(grants, g)
	}
	return grants
}

// ordered returns the properties of a VM that is to be launched.
func ordered(o plan.Offer, region string) node.VM {
	v := node.VM{
		Memory: o.Memory, Cores: uint32(o.Cores), Distance: uint32(o.Distance), Spot: o.Spot, Price: o.Price,
		Notice: o.Notice, CloudRegion: region,
	}
	if !o.Fitted {
		v.Type = o.Type
	}
	return v
}

// lend gives reserved grants to their cache. Called under mu.
func (c *state) lend(grants []*grant, change uint64) {
	for _, g := range grants {
		g.phase, g.change = lent, change
		c.grants[g.key()] = g
		c.touch(g)
	}
}

// leave begins to take grants back that were removed from their cache or request. Called
// under mu.
func (c *state) leave(grants []*grant) {
	for _, g := range grants {
		g.vm.lent--
		if g.phase == reserved && !g.launch {
			c.free(g) // no client has it
			continue
		}
		if g.phase == lent {
			c.touch(g)
		}
		g.phase = leaving
		g.endLook()
		c.queue(g.key())
		c.queue(g.vm.key()) // it may be needed no more
	}
}

// free ends a grant whose memory nobody can reach any more. Called under mu.
func (c *state) free(g *grant) {
	if g.phase == gone {
		return
	}
	if g.phase == leaving {
		c.touch(g)
	}
	g.phase = gone
	g.endLook()
	delete(c.grants, g.key())
	delete(g.vm.held, g)
	g.vm.reserved -= g.bytes()
	g.vm.threads -= g.cores
	c.list(g.vm)
	c.queue(g.vm.key())
	if !g.refused {
		c.then(func() { close(g.freed) })
	}
}

// takenBack ends a leaving grant that its server has taken back.
func (c *state) takenBack(g *grant) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	c.free(g)
	return nil
}

// toTakeBack returns a leaving grant whose server has to be told, with the server.
func (c *state) toTakeBack(key string) (g *grant, server node.VM, err error) {
	c.mu.Lock()
	defer c.end(&err)
	g = c.grants[key]
	switch {
	case g == nil || g.phase != leaving:
		return nil, server, nil
	case g.vm.failed != "" && (g.vm.launched || g.vm.unreachable):
		c.free(g)
		return nil, server, nil
	case g.vm.launched && g.vm.lent == 0:
		return nil, server, nil // the VM is terminated with it
	}
	return g, g.vm.VM, nil
}

// shrunk returns a grant of which its cache has given regions back that its server may still lend:
// whoever has the terms of before can show them to the server, and need not have released them.
// That memory is free when the server shows that it lends no more than the cache has.
func (c *state) shrunk(key string) (g *grant, server node.VM) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g = c.grants[key]
	switch {
	case g == nil || g.phase != lent || g.lends == g.regions:
		return nil, server
	case g.vm.failed != "":
		g.endLook()
		return nil, server
	}
	return g, g.vm.VM
}

// look asks the server of a shrunk grant how much it lends. While that is too much, or the grant has
// not been connected, it asks again later.
func (l *leader) look(ctx context.Context, g *grant, server node.VM) error {
	grants, err := l.grantsOf(ctx, server)
	if err := l.state.lookedAt(g, grants); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("grant %s of cache %s: what VM %s lends of it: %w", g.id, g.cache, g.vm.id, err)
	}
	if more, _ := l.state.shrunk(g.key()); more == g {
		l.keys.addAfter(g.key(), l.opts.Heartbeat)
	}
	return nil
}

// lookedAt notes what a server shows of a grant.
func (c *state) lookedAt(g *grant, grants []*serverv1.Grant) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	for _, shown := range grants {
		if shown.GetCacheId() == g.cache && shown.GetId() == g.id {
			c.shows(g, shown.GetRegions())
		}
	}
	g.endLook()
	return nil
}

// shows notes how many regions a server lends of a grant, up to what it can have. Called under mu.
func (c *state) shows(g *grant, regions uint32) {
	regions = min(regions, uint32(min(maxRegions, max(g.vm.Memory, g.vm.memory)/max(1, g.regionSize))))
	if g.phase != lent || max(g.regions, regions) == g.lends {
		return
	}
	g.vm.reserved -= g.bytes()
	g.lends = max(g.regions, regions)
	g.vm.reserved += g.bytes()
	c.touch(g)
	c.list(g.vm)
	if g.lends > g.regions {
		c.queue(g.key())
	} else {
		g.endLook()
	}
}

// reconcileGrant takes a leaving grant back from its server, or what a shrunk one has left.
func (l *leader) reconcileGrant(ctx context.Context, key string) error {
	if g, server := l.state.shrunk(key); g != nil {
		return l.look(ctx, g, server)
	}
	g, server, err := l.state.toTakeBack(key)
	if err != nil || g == nil {
		return err
	}
	err = l.disconnect(ctx, server, g.cache, g.id)
	// A server that obeys the leader before this one for a while is not lost sight of.
	if err != nil && !l.state.lostSight(g, connect.CodeOf(err) == connect.CodeFailedPrecondition) {
		return fmt.Errorf("grant %s of cache %s not taken back from VM %s: %w", g.id, g.cache, g.vm.id, err)
	}
	return l.state.takenBack(g)
}

// lostSight notes that the server of a grant has not taken it back. It reports whether the VM
// has failed and its server does not obey later, so that it is not asked again.
func (c *state) lostSight(g *grant, later bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !g.refused && g.phase == leaving {
		g.refused = true
		close(g.freed)
	}
	g.vm.unreachable = g.vm.failed != "" && !later
	return g.vm.unreachable
}

// disconnectTimeout bounds one call of a server.
const disconnectTimeout = 5 * time.Second

// disconnect takes a grant back from a server. It is no error if the server does not have it,
// because the client never connected or has disconnected.
func (l *leader) disconnect(ctx context.Context, v node.VM, cache, grant string) error {
	ctx, cancel := context.WithTimeout(ctx, disconnectTimeout)
	defer cancel()
	client := serverv1connect.NewCacheServerServiceClient(l.servers, v.ControlURL, connect.WithReadMaxBytes(maxMessage))
	req := connect.NewRequest(&serverv1.DisconnectRequest{CacheId: cache, Grant: grant})
	v.Authorize(req.Header(), l.self)
	_, err := client.Disconnect(ctx, req)
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return err
	}
	return nil
}

// releasePatience is how long a call waits for the grants that it takes back.
const releasePatience = 5 * time.Second

// awaitFreed waits until grants are gone or their servers have refused once, but not for long.
func (l *leader) awaitFreed(ctx context.Context, grants []*grant) {
	var all []<-chan struct{}
	for _, g := range grants {
		all = append(all, g.freed)
	}
	l.awaitAll(ctx, all)
}

// awaitAll waits until channels are closed, but not for long.
func (l *leader) awaitAll(ctx context.Context, all []<-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	for _, c := range all {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}
