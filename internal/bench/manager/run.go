package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/manager/api"
)

// run is a measurement.
type run struct {
	Spec
	progress bench.Progress
	report   *Report
	manager  *bench.Child // replaced by restart and takeover
	url      atomic.Pointer[string]
	calls    http.RoundTripper                     // many calls over few connections, by HTTP/2: all but the beats
	mgr      managerv1connect.ManagerServiceClient // the operator's
	servers  *servers
	beating  beating
	watching context.Context // of the watches

	mu     sync.Mutex // guards caches
	caches []*cache   // that exist
}

// cache is one cache of a client.
type cache struct {
	id   string
	over managerv1connect.ManagerServiceClient // its client's
	vms  []string
	told chan struct{} // closed when its watcher was told that a VM has failed, or the watch has ended; nil: it is not watched
}

// Run measures a manager. progress may be nil.
func Run(ctx context.Context, s Spec, progress bench.Progress) (_ *Report, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	// A collection of this process's garbage takes a processor for a tenth of a second, which
	// all beats would wait for.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(min(debug.SetMemoryLimit(-1), 3<<30)))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(s.TLS == nil)
	protocols.SetHTTP2(s.TLS != nil)
	calls := &http.Transport{Protocols: protocols, DialContext: api.Dialer.DialContext, TLSClientConfig: s.TLS.Clone()}
	defer calls.CloseIdleConnections()
	r := &run{Spec: s, progress: bench.OrQuiet(progress), calls: calls, report: &Report{Machine: machine.Describe(), Spec: s}}
	r.mgr = r.client(-1, calls)
	if r.servers, err = newServers(ctx, &s); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.servers.close()) }()
	if r.manager, err = s.Start(ctx, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	defer func() { _ = r.manager.Close() }() // it may be killed
	r.leads(r.manager)
	if err := r.awaitServed(ctx, time.Now(), func() error {
		_, err := r.mgr.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
		return err
	}); err != nil {
		return nil, err
	}
	defer r.beat(ctx)()
	var stop context.CancelFunc
	r.watching, stop = context.WithCancel(ctx)
	defer stop()
	for _, phase := range []func(context.Context) error{r.register, r.idle, r.allocate, r.paced, r.idle, r.churn, r.rack, r.restart, r.takeover} {
		if err := phase(ctx); err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
	}
	return r.report, nil
}

// leads makes all calls go to a manager from now on.
func (r *run) leads(m *bench.Child) {
	url, _, _ := strings.Cut(m.Ready, ",")
	url, _, _ = strings.Cut(url, " ")
	r.url.Store(&url)
}

func (r *run) host() string {
	_, host, _ := strings.Cut(*r.url.Load(), "://")
	return host
}

// client returns a client of the present manager with the token of a connection, as of
// Spec.token.
func (r *run) client(connection int, over http.RoundTripper) managerv1connect.ManagerServiceClient {
	return managerv1connect.NewManagerServiceClient(&http.Client{Transport: caller{r, over, r.token(connection)}}, "http://manager")
}

// of returns a client of the manager with the token of one of the clients that caches belong to.
func (r *run) of(client int) managerv1connect.ManagerServiceClient {
	return r.client(r.connectionOf(client), r.calls)
}

// connectionOf returns the connection of a client's beats.
func (r *run) connectionOf(client int) int { return (r.VMs + client) % r.Connections }

// caller sends calls to the present manager.
type caller struct {
	*run
	over  http.RoundTripper
	token string // empty: none
}

// RoundTrip implements [http.RoundTripper].
func (c caller) RoundTrip(req *http.Request) (*http.Response, error) {
	req.URL.Host = c.host()
	if c.TLS != nil {
		req.URL.Scheme = "https"
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.over.RoundTrip(req)
}

// beat makes the clients of the players, each as a program makes its own. stop ends the players.
func (r *run) beat(ctx context.Context) (stop func()) {
	b := &r.beating
	b.interval = r.Heartbeat
	b.latencies.Store(newLatencies())
	var all []*http.Client
	for i := range r.Connections {
		c := api.NewHTTPClient(r.TLS.Clone())
		c.Transport.(*http.Transport).MaxConnsPerHost = 1 // players that share a connection wait for each other
		all, b.clients = append(all, c), append(b.clients, r.client(i, c.Transport))
	}
	ctx, cancel := context.WithCancel(ctx)
	b.start(ctx)
	return func() {
		cancel()
		b.stop()
		for _, c := range all {
			c.CloseIdleConnections()
		}
	}
}

// measure runs a phase, and adds its row.
func (r *run) measure(phase string, total int, do func(row *Row) error) error {
	row := Row{Phase: phase, Catalog: r.Catalog, VMs: r.VMs}
	l := newLatencies()
	r.beating.latencies.Store(l)
	r.progress.Begin(phase, int64(total))
	before := usageOf(r.manager.PID())
	err := do(&row)
	r.progress.End()
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	after := usageOf(r.manager.PID())
	row.Seconds, row.RSS = after.at.Sub(before.at).Seconds(), after.rss
	if row.RestartS == 0 && row.TakeoverS == 0 { // else it is another process
		row.CPU = (after.cpu - before.cpu).Seconds() / row.Seconds
	}
	l.mu.Lock()
	row.BeatsPerS, row.BeatsFailed = float64(l.h.TotalCount())/row.Seconds, l.failed
	row.BeatP50Ms, row.BeatP999Ms = l.millis(50), l.millis(99.9)
	l.mu.Unlock()
	row.Beating = r.beating.joined.Load()
	r.mu.Lock()
	row.Caches = len(r.caches)
	r.mu.Unlock()
	r.report.Rows = append(r.report.Rows, row)
	return nil
}

// each calls do for the numbers below n, by Callers goroutines.
func (r *run) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	callers, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range r.Callers {
		callers.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := do(ctx, int(i)); err != nil {
					return err
				}
				r.progress.Add(1)
			}
			return ctx.Err()
		})
	}
	return callers.Wait()
}

func (r *run) register(ctx context.Context) error {
	return r.measure("register", r.VMs, func(row *Row) error {
		began := time.Now()
		err := r.each(ctx, r.VMs, func(ctx context.Context, i int) error {
			v, client := r.servers.list[i], r.beating.clients[i%r.Connections]
			if _, err := client.Register(ctx, connect.NewRequest(v.registration())); err != nil {
				return err
			}
			r.beating.joinServer(v, client)
			return nil
		})
		row.RegistrationsPerS = float64(r.VMs) / time.Since(began).Seconds()
		return err
	})
}

// idle measures beats alone.
func (r *run) idle(ctx context.Context) error {
	time.Sleep(min(time.Second, r.Duration)) // until all players have begun
	return r.measure("beats", 1, func(*Row) error {
		clock.Sleep(ctx, r.Duration)
		return ctx.Err()
	})
}

// allocateOne allocates one cache for a client, and counts in row, from the time at which the call was
// due. The cache is nil if it was refused.
func (r *run) allocateOne(ctx context.Context, client int, due time.Time, row *Row, l *latencies) (*cache, error) {
	over := r.of(client)
	a, err := over.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{
		Capacity: regionSize, RegionSize: regionSize, Transport: "tcp", RequestId: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()),
		Configuration: &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 1},
	}))
	l.add(time.Since(due), 0, err)
	if err != nil {
		if connect.CodeOf(err) == connect.CodeResourceExhausted {
			atomic.AddInt64(&row.Refused, 1)
		} else {
			atomic.AddInt64(&row.Failed, 1)
		}
		return nil, ctx.Err()
	}
	c := &cache{id: a.Msg.GetCacheId(), over: over}
	for _, g := range a.Msg.GetGrants() {
		c.vms = append(c.vms, g.GetVm().GetId())
	}
	return c, nil
}

// allocated sets the figures of allocations.
func (row *Row) allocated(l *latencies, took time.Duration) {
	row.AllocationsPerS = float64(l.h.TotalCount()) / took.Seconds()
	row.AllocateP50Ms, row.AllocateP99Ms = l.millis(50), l.millis(99)
}

// allocate allocates half of the caches, by callers that call again at once.
func (r *run) allocate(ctx context.Context) error {
	return r.allocateUpTo(ctx, "allocate", (r.Caches+1)/2, func(context.Context, int) time.Time { return time.Now() })
}

// paced allocates the other caches at a rate. A call's latency counts from the time at which
// it was due, also if it had to wait for a caller.
func (r *run) paced(ctx context.Context) error {
	began := time.Now()
	return r.allocateUpTo(ctx, "paced", r.Caches, func(ctx context.Context, i int) time.Time {
		due := began.Add(time.Duration(float64(i) / r.Rate * float64(time.Second)))
		clock.Sleep(ctx, time.Until(due))
		return due
	})
}

// allocateUpTo is a phase that allocates caches until there are n. The function due waits
// until its call with a number is due, and returns that time.
func (r *run) allocateUpTo(ctx context.Context, phase string, n int, due func(ctx context.Context, i int) time.Time) error {
	first := len(r.caches)
	return r.measure(phase, n-first, func(row *Row) error {
		l, began := newLatencies(), time.Now()
		err := r.each(ctx, n-first, func(ctx context.Context, i int) error {
			owner := (first + i) % r.Clients
			c, err := r.allocateOne(ctx, owner, due(ctx, i), row, l)
			if c == nil {
				return err
			}
			if r.Watches {
				if err := r.watch(c); err != nil {
					return err
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.caches = append(r.caches, c)
			r.beating.joinCache(c.id, r.beating.clients[r.connectionOf(owner)])
			return nil
		})
		row.allocated(l, time.Since(began))
		return err
	})
}

// churn allocates and deallocates.
func (r *run) churn(ctx context.Context) error {
	return r.measure("churn", 0, func(row *Row) error {
		l, gone, began := newLatencies(), newLatencies(), time.Now()
		callers, ctx := errgroup.WithContext(ctx)
		for i := range r.Callers {
			callers.Go(func() error {
				for time.Since(began) < r.Duration {
					c, err := r.allocateOne(ctx, i%r.Clients, time.Now(), row, l)
					if err != nil {
						return err
					}
					if c == nil {
						continue
					}
					asked := time.Now()
					if _, err := c.over.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: c.id})); err != nil {
						return err
					}
					gone.add(time.Since(asked), 0, nil)
				}
				return nil
			})
		}
		err := callers.Wait()
		row.allocated(l, time.Since(began))
		row.DeallocateP99Ms = gone.millis(99)
		return err
	})
}

// awaitServed repeats a call until the manager, which may not lead yet, serves it; for a
// minute from began.
func (r *run) awaitServed(ctx context.Context, began time.Time, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		if time.Since(began) > time.Minute || ctx.Err() != nil {
			return fmt.Errorf("not served in a minute: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitBack waits until the manager answers, and then until all players had an answer.
func (r *run) awaitBack(ctx context.Context, began time.Time, answered *float64, row *Row) error {
	if err := r.awaitServed(ctx, began, func() error {
		_, err := r.caches[0].over.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: r.caches[0].id}))
		return err
	}); err != nil {
		return err
	}
	*answered = time.Since(began).Seconds()
	r.beating.awaited.Store(r.beating.joined.Load())
	r.beating.round.Add(1)
	for r.beating.awaited.Load() > 0 {
		if time.Since(began) > 2*time.Minute || ctx.Err() != nil {
			return fmt.Errorf("%d beats did not come back", r.beating.awaited.Load())
		}
		time.Sleep(time.Millisecond)
	}
	row.BeatsS = time.Since(began).Seconds() - *answered
	return nil
}

// restart kills the manager and starts it again.
func (r *run) restart(ctx context.Context) error {
	if !r.Durable || len(r.caches) == 0 {
		return nil
	}
	return r.measure("restart", 0, func(row *Row) error {
		r.manager.Kill()
		began := time.Now()
		again, err := r.Start(ctx, r.host())
		if err != nil {
			return err
		}
		r.manager = again
		return r.awaitBack(ctx, began, &row.RestartS, row)
	})
}

// takeover kills the manager while another one stands by.
func (r *run) takeover(ctx context.Context) error {
	if !r.Standby || len(r.caches) == 0 {
		return nil
	}
	standby, err := r.Start(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	clock.Sleep(ctx, r.Duration) // it reads the catalog
	return r.measure("takeover", 0, func(row *Row) error {
		r.manager.Kill()
		began := time.Now()
		r.manager = standby
		r.leads(standby)
		return r.awaitBack(ctx, began, &row.TakeoverS, row)
	})
}
