package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/redytier"
)

// Run measures each disturbance without the loop and with it.
func Run(ctx context.Context, spec Spec, progress bench.Progress) (*Report, error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("keepbench: %w", err)
	}
	r := &Report{Machine: machine.Describe(), Spec: spec}
	progress = bench.OrQuiet(progress)
	progress.Begin("keep", int64(2*len(spec.Disturbances)))
	defer progress.End()
	for _, d := range spec.Disturbances {
		for _, watch := range []manager.SLOWatch{manager.Observe, manager.Correct} {
			row, err := once(ctx, &spec, d, watch)
			if err != nil {
				return nil, fmt.Errorf("keepbench: %s, SLO watch %v: %w", d, watch, err)
			}
			r.Rows = append(r.Rows, row)
			progress.Add(1)
		}
	}
	return r, nil
}

// once measures one disturbance with a manager, servers and caches of its own.
func once(ctx context.Context, spec *Spec, d Disturbance, watch manager.SLOWatch) (row Row, err error) {
	own, err := networkModel()
	if err != nil {
		return row, err
	}
	// The clients' lease is short by default, as they report windows with each renewal.
	mgr, err := manager.Embed(ctx, manager.EmbedOptions{
		Pool: true, Lease: cmp.Or(spec.Lease, 8*spec.Window), Models: []*model.Model{own}, SLOWatch: watch, Logger: spec.Log,
	})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, mgr.Close()) }()
	var servers []*bench.Child
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	for i := range spec.Caches + 1 {
		s, err := spec.Server(ctx, mgr.URL(), serverID(i), 4*capacity)
		if err != nil {
			return row, err
		}
		servers = append(servers, s)
	}
	w := newWeather()
	loads, end, err := open(ctx, spec, mgr, w)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return row, err
	}
	row = Row{Disturbance: d, Loop: "off"}
	if watch == manager.Correct {
		row.Loop = "on"
	}
	windows, good, err := measure(ctx, loads, 4*spec.Window, spec.Window)
	if err != nil {
		return row, err
	}
	row.Before = float64(good) / float64(windows)
	calm, err := disturb(ctx, d, w, mgr, servers)
	if err != nil {
		return row, err
	}
	defer calm()
	if err := pause(ctx, spec.Settle); err != nil {
		return row, err
	}
	if row.Windows, row.Kept, err = measure(ctx, loads, spec.Measure, spec.Window); err != nil {
		return row, err
	}
	calm()
	row.Share = float64(row.Kept) / float64(row.Windows)
	row.Changes, err = changes(ctx, mgr, loads)
	return row, err
}

func serverID(i int) string { return fmt.Sprintf("server-%d", i) }

// open opens the caches, each on a server of its own, and loads them. end ends them.
func open(ctx context.Context, spec *Spec, mgr redytier.Manager, w *weather) (loads []*load, end func() error, err error) {
	var caches []*redytier.Cache
	end = func() (err error) {
		for _, l := range loads {
			l.stop()
		}
		for _, c := range caches {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			err = errors.Join(err, c.Delete(ctx))
			cancel()
		}
		return err
	}
	for i := range spec.Caches {
		c, err := redytier.Create(ctx, onServer{mgr, serverID(i)}, redytier.Config{
			Capacity: capacity, SLO: slo, Transport: "tcp", Window: spec.Window, Logger: spec.Log,
		}.Behind(w.over))
		if err != nil {
			return loads, end, err
		}
		caches = append(caches, c)
		loads = append(loads, startLoad(ctx, c))
	}
	return loads, end, nil
}

// closeTimeout bounds the deletion of a cache.
const closeTimeout = 30 * time.Second

// onServer allocates caches on one server.
type onServer struct {
	redytier.Manager
	id string
}

func (m onServer) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	req.Msg.VmId = m.id
	return m.Manager.Allocate(ctx, req)
}

// changes returns the most changes that a cache was asked to make.
func changes(ctx context.Context, mgr *manager.Embedded, loads []*load) (most int, err error) {
	for _, l := range loads {
		d, err := mgr.DescribeCache(ctx, connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: l.cache.ID()}))
		if err != nil {
			return 0, err
		}
		n := 0
		for _, e := range d.Msg.GetEvents() {
			if e.GetKind() == managerv1.WatchResponse_KIND_SLO_CHANGE && !strings.HasPrefix(e.GetReason(), manager.NothingDone) {
				n++
			}
		}
		most = max(most, n)
	}
	return most, nil
}

// weather is the network between caches and servers, which a disturbance changes.
type weather struct {
	mu    sync.Mutex
	all   fabric.Model
	links map[string]*fabric.Live // by the server's address
}

func newWeather() *weather { return &weather{all: network, links: make(map[string]*fabric.Live)} }

// link returns the network to a server.
func (w *weather) link(addr string) *fabric.Live {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.links[addr] == nil {
		w.links[addr] = fabric.NewLive(w.all)
	}
	return w.links[addr]
}

// setAll changes the network to all servers.
func (w *weather) setAll(m fabric.Model) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = m
	for _, l := range w.links {
		l.Set(m)
	}
}

// over returns a provider whose connections pass through the network.
func (w *weather) over(p fabric.Provider) fabric.Provider { return behind{p, w} }

type behind struct {
	fabric.Provider
	weather *weather
}

// Dial implements [fabric.Provider].
func (b behind) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	return fabric.WithLive(b.Provider, b.weather.link(addr)).Dial(ctx, addr, private, depth)
}

// disturb begins a disturbance, of the first server unless it concerns all. calm ends it, and may be
// called again.
func disturb(ctx context.Context, d Disturbance, w *weather, mgr *manager.Embedded, servers []*bench.Child) (calm func(), err error) {
	switch d {
	case Network:
		slow := network
		slow.RTT *= 2
		w.setAll(slow)
		return func() { w.setAll(network) }, nil
	case Link:
		all, err := mgr.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
		if err != nil {
			return nil, err
		}
		narrow := network
		narrow.BitsPerSecond /= narrowed
		for _, v := range all.Msg.GetVms() {
			if v.GetId() == serverID(0) {
				link := w.link(v.GetFabricAddr())
				link.Set(narrow)
				return func() { link.Set(network) }, nil
			}
		}
		return nil, errors.New("the first server is gone")
	case Neighbour:
		return takeProcessor(servers[0].PID()), nil
	}
	return nil, fmt.Errorf("disturbance %q: want one of %v", d, Disturbances)
}

// takeProcessor stops a process most of the time, as if its processor had another one to run. It
// returns what ends that.
func takeProcessor(pid int) (calm func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // fails if it has ended, which the caller finds
			time.Sleep(stopFor)
			_ = syscall.Kill(pid, syscall.SIGCONT)
			select {
			case <-time.After(runFor):
			case <-stop:
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(stop); <-ended })
}
