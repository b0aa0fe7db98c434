package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
)

// cache is one allocation. Guarded by state.mu, except id, owner, requestID and requestSum, which do
// not change.
//
//	Allocate ──granted──► grants ◄──settle── pending ◄──granted── Reallocate
//
// Until they are granted, grants belong to request.
type cache struct {
	*stored
	id         string
	owner      string            // name of the token that allocated it; empty: none was needed
	requestID  string            // of its Allocate
	requestSum []byte            // hash of that request
	demand     demand            // what the cache needs
	grants     []*grant          // in the order of the cache's addresses
	pending    []*grant          // given by Reallocate, and neither settled nor released yet
	given      uint64            // number of the last grant that was given
	adopted    uint64            // grants of lower numbers may be of managers with other catalogs: see adopt.go
	change     uint64            // change number of the last Settle
	last       *catalogv1.Change // the last Reallocate that was answered; nil: none
	request    *request          // that waits for VMs; nil: none
	ready      bool              // Allocate has succeeded; other calls see the cache
	ended      bool              // it is not in state.caches any more
	past       *past             // what is kept of it; nil: it has not ended, or was given up before it was ready
	expires    time.Time         // end of the lease; zero: none
	lease      time.Duration     // as the client was told; 0: none
	linger     time.Duration     // for which it is kept after its lease
	refused    time.Time         // when the first renewal since the last good one was refused; zero: none was
	lingers    time.Time         // when it is deallocated, as its lease has ended; zero: it has not
	holder     uint64            // number of its client: see holder.go
	attachID   string            // of the Attach of that client; empty: it allocated the cache
	inOrder    bool              // its first grants hold its regions in order
	own        bool              // of a calibration of this manager
	places     []*managerv1.Places
	moving     *catalogv1.Moving // immutable; nil: the places are those of all regions
	log        eventLog

	changes uint64 // number of changes, to detect concurrent ones
	txn     uint64 // number of the last txn with a change of the cache; 0: it was loaded

	created   time.Time
	decisions decisions
	moved     time.Time // when its VMs last changed
	move      *move     // that the cache was asked to make; nil: none
	known     knownReach

	measurements measurements
	keeping      keeping
}

// source returns the source of the rates that the cache's client reports.
func (ca *cache) source() string { return cmp.Or(ca.owner, ca.id) }

// request is an Allocate or a Reallocate of a cache that waits for VMs to be up. Guarded by
// state.mu, except done.
type request struct {
	addition
	number  uint64        // the older of two has the lower one
	change  uint64        // of Reallocate; 0: it is an Allocate
	waiting int           // calls that wait for it
	left    time.Time     // when the last call stopped waiting
	done    chan struct{} // closed when it is granted or has failed
	err     error         // why it has failed; set before done is closed
}

// addition are grants that a call gives a cache.
type addition struct {
	grants   []*grant
	config   *managerv1.Configuration
	decision *managerv1.Decision // nil: nothing had to be chosen
	client   *managerv1.Client   // of the request; nil: not known
	whole    bool                // they replace all the cache's grants
	moves    *managerv1.RegionRuns
	within   reach // where launched VMs have to be; nil: anywhere
}

// begin makes a request for reserved grants. It is granted at once if their VMs are up.
// Called under mu.
func (c *state) begin(ca *cache, more addition, change uint64, t term) *request {
	c.requests++
	r := &request{addition: more, number: c.requests, change: change, done: make(chan struct{})}
	ca.request = r
	c.proceed(ca, t)
	return r
}

// proceed grants a cache's request if all its VMs are up, or fails it if one has failed.
// Called under mu.
func (c *state) proceed(ca *cache, t term) {
	r := ca.request
	if r == nil {
		return
	}
	if r.change > 0 && r.change <= ca.change {
		c.giveUp(ca, fmt.Errorf("cache %s: change %d %w: the last one is %d", ca.id, r.change, errStale, ca.change))
		return
	}
	for _, g := range r.grants {
		if g.vm.failed != "" || !g.vm.leaves.IsZero() && g.vm.ControlURL != "" {
			err := g.vm.launchErr
			if err == nil {
				err = g.vm.usable()
			}
			c.giveUp(ca, err)
			return
		}
		if err := r.tooFar(g); err != nil {
			c.giveUp(ca, err)
			return
		}
	}
	for _, g := range r.grants {
		if g.vm.ControlURL == "" {
			return
		}
	}
	if err := usable(r.grants); err != nil {
		c.giveUp(ca, err)
		return
	}
	ca.request = nil
	c.lend(r.grants, r.change)
	if r.change > 0 {
		ca.pending = append(ca.pending, r.grants...)
		ca.last = &catalogv1.Change{Number: r.change, Configuration: r.config, Whole: r.whole}
		ca.moves(r.change, r.moves, r.whole)
		ca.decide("reallocate", r.decision)
		if r.client != nil {
			ca.demand.client = r.client
		}
	} else {
		ca.grants, ca.ready = r.grants, true
		if ca.inOrder {
			ca.places = inOrder(ca.grants)
		}
		if far := farthestOf(r.grants); far > 0 {
			ca.demand.distance = far // launched VMs may be at another distance than planned
		}
		ca.renew(t)
		ca.decide("allocate", r.decision)
	}
	if r.decision != nil {
		c.touch(&ca.decisions)
	}
	c.touch(ca)
	c.then(func() { close(r.done) })
}

// tooFar returns errTooFar for a grant on a launched VM at a distance where the SLO is not met.
// Called under mu.
func (r *request) tooFar(g *grant) error {
	v := g.vm
	if !g.launch || r.within == nil || v.Distance == 0 || r.within.holds(v.Distance) {
		return nil
	}
	return fmt.Errorf("VM %s %w: %d switches from clients, where the SLO is not met", v.id, errTooFar, v.Distance)
}

// farthestOf returns the largest distance of the VMs; 0: none is known. Called under mu.
func farthestOf(grants []*grant) (far uint32) {
	for _, g := range grants {
		far = max(far, g.vm.Distance)
	}
	return far
}

// giveUp fails a cache's request and frees its grants. A cache that was not allocated yet
// ends. Called under mu.
func (c *state) giveUp(ca *cache, err error) {
	r := ca.request
	if r == nil {
		return
	}
	ca.request = nil
	r.err = err
	for _, g := range r.grants {
		if g.launch {
			g.vm.unwanted = err
		}
	}
	c.leave(r.grants)
	if !ca.ready {
		c.remove(ca)
	}
	c.then(func() { close(r.done) })
}

// remove takes a cache out of the state. Called under mu.
func (c *state) remove(ca *cache) {
	ca.ended = true
	delete(c.caches, ca.id)
	if c.asked[ca.requestID] == ca {
		delete(c.asked, ca.requestID)
	}
	c.touch(ca)
	c.touch(&ca.decisions)
}

// delete ends a cache, tells its watchers the reason, and returns its grants. Called under mu.
func (c *state) delete(ca *cache, now time.Time, reason string) []*grant {
	c.giveUp(ca, noCache(ca.id))
	c.remove(ca)
	ca.past = &past{stored: ca.stored, cache: ca.id, requestID: ca.requestID, at: now}
	c.remember(ca.past)
	c.tell(ca, nil, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_CACHE_DELETED, Reason: reason})
	all := ca.all()
	c.leave(all)
	return all
}

// deallocate deletes a cache, also one that is not ready yet. It returns false if there is
// none. holder is that of the call; nil: an operator's.
func (c *state) deallocate(id string, holder *uint64, now time.Time, reason string) (grants []*grant, existed bool, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca := c.caches[id]
	if ca == nil {
		return nil, false, nil
	}
	if holder != nil {
		if err := ca.checkHolder(*holder); err != nil {
			return nil, false, err
		}
	}
	return c.delete(ca, now, reason), true, nil
}

// reconcileCache lets a cache's request proceed.
func (c *state) reconcileCache(id string, t term) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	if ca := c.caches[id]; ca != nil {
		c.proceed(ca, t)
	}
	return nil
}

// starting lists what a request waits for, a line each. Called under mu.
func (r *request) starting() (all []string) {
	for _, g := range r.grants {
		v := g.vm
		if v.ControlURL != "" || v.failed != "" {
			continue
		}
		what := "VM " + v.id
		if v.Type != "" {
			what += " of type " + v.Type
		}
		if v.place.Machine != "" {
			what += " (" + v.place.Name + " on " + v.place.Machine + ")"
		}
		state := "is to be launched"
		switch {
		case v.waits != "":
			state = "waits: " + v.waits
		case v.launching:
			state = "has been launched and has not registered"
		}
		all = append(all, fmt.Sprintf("%s %s, for %v", what, state, time.Since(v.entered).Round(time.Second)))
	}
	if len(all) == 0 {
		all = append(all, "the catalog has to be written")
	}
	return all
}

// await waits for a request, in whose waiting calls this one is counted, until ctx ends or for
// wait, 0 being without limit. It returns what is pending then. The request goes on for a while
// without a waiting call, as the client may repeat it.
func (l *leader) await(ctx context.Context, r *request, wait time.Duration) (pending []string, err error) {
	var after <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-r.done:
	case <-after:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	pending, err = l.state.leaveRequest(r, l.opts.now(), err)
	select {
	case <-r.done:
		if err != nil {
			l.awaitFreed(l.ctx, r.grants) // so that the call has changed nothing
		}
	default:
	}
	return pending, err
}

// abandon ends a call of which the request, if it is not nil, could not be written in time. The
// request may be written later, and then waits for a repetition of the call.
func (l *leader) abandon(r *request, cause error) {
	if r != nil {
		_, _ = l.state.leaveRequest(r, l.opts.now(), cause) // cause is the call's error
	}
}

// leaveRequest ends a call's wait for a request, with err if ctx has ended.
func (c *state) leaveRequest(r *request, now time.Time, cause error) (pending []string, err error) {
	c.mu.Lock()
	defer c.end(&err)
	r.waiting--
	r.left = now
	select {
	case <-r.done:
		return nil, r.err
	default:
	}
	if cause == nil {
		return r.starting(), nil
	}
	return nil, cause
}

// forgotten is the time after which a request that no call waits for is given up.
const forgotten = time.Minute

// dropForgotten gives up the requests that no client repeats.
func (c *state) dropForgotten(now time.Time) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	for _, ca := range c.caches {
		if r := ca.request; r != nil && r.waiting == 0 && now.Sub(r.left) > forgotten {
			c.giveUp(ca, fmt.Errorf("no client has asked for it for %v", forgotten))
		}
	}
	return nil
}

// decide notes a decision, which replaces the last one of its kind. Called under mu.
func (ca *cache) decide(what string, d *managerv1.Decision) {
	if d == nil {
		return
	}
	d.What = what
	bound(d)
	kept := slices.DeleteFunc(slices.Clone(ca.decisions.p.GetDecisions()), func(old *managerv1.Decision) bool { return old.GetWhat() == what })
	ca.decisions.p = &catalogv1.Decisions{Decisions: append(kept, d)}
}

// watched returns a ready cache.
func (c *state) watched(id string) (*cache, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.caches[id]
	return ca, ca != nil && ca.ready
}

// known is watched with an error. Called under mu.
func (c *state) known(id string) (*cache, error) {
	ca := c.caches[id]
	if ca == nil || !ca.ready {
		return nil, noCache(id)
	}
	return ca, nil
}

func noCache(id string) error { return fmt.Errorf("%w %.40q", errUnknownCache, id) }

// all lists the grants of a cache, the pending ones last. Called under mu.
func (ca *cache) all() []*grant { return slices.Concat(ca.grants, ca.pending) }

// holds reports whether a cache has a grant on a VM. Called under mu.
func (ca *cache) holds(v *vm) bool {
	for g := range v.held {
		if g.cache == ca.id && g.phase == lent {
			return true
		}
	}
	return false
}

// users lists the ready caches with grants on a VM. Called under mu.
func (c *state) users(v *vm) []*cache {
	seen := make(map[*cache]bool)
	for g := range v.held {
		if ca := c.caches[g.cache]; ca != nil && g.phase == lent {
			seen[ca] = true
		}
	}
	return slices.Collect(maps.Keys(seen))
}
