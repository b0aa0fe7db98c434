package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/model"
)

// EmbedOptions configure an embedded manager.
type EmbedOptions struct {
	// Allocator launches the VMs; the embedded manager owns it. Default: an
	// [allocator.InProcess] over mem, with the machine's memory, unless Pool is set.
	Allocator allocator.Allocator
	// Pool says that no VM is launched without an Allocator: memory is that of registered
	// servers.
	Pool bool
	// VMMemory is as in [Options].
	VMMemory uint64
	// Economy is as in [Options].
	Economy Economy
	// Lease is as in [Options]. Default: none, as a cache of this process ends with it.
	Lease time.Duration
	// Models, SLOMargin and UncalibratedMargin are as in [Options].
	Models                        []*model.Model
	SLOMargin, UncalibratedMargin float64
	// SLOWatch and SLOChanges are as in [Options].
	SLOWatch   SLOWatch
	SLOChanges int
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger
}

// Embedded is a manager in this process, and a client of it. Its control API is served on
// a loopback address.
type Embedded struct {
	access.Client
	manager *Manager
	served  chan error
}

// Embed starts a manager in this process. The caller closes it after the caches that were
// allocated from it.
func Embed(ctx context.Context, opts EmbedOptions) (*Embedded, error) {
	if opts.Allocator == nil && !opts.Pool {
		a, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: opts.Logger})
		if err != nil {
			return nil, err
		}
		opts.Allocator = a
	}
	closeAllocator := func() error { return nil }
	if opts.Allocator != nil {
		closeAllocator = opts.Allocator.Close
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("manager: embed: %w", err), closeAllocator())
	}
	url := "http://" + ln.Addr().String()
	m, err := New(Options{
		Allocator: opts.Allocator, VMMemory: opts.VMMemory, URL: url,
		Economy: opts.Economy, Lease: cmp.Or(opts.Lease, -1), Models: opts.Models, SLOMargin: opts.SLOMargin, UncalibratedMargin: opts.UncalibratedMargin,
		SLOWatch: opts.SLOWatch, SLOChanges: opts.SLOChanges, Logger: opts.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close(), closeAllocator())
	}
	e := &Embedded{Client: access.Dial(url), manager: m, served: make(chan error, 1)}
	go func() { e.served <- m.Serve(ln) }()
	return e, nil
}

// URL returns the URL of the control API, for other processes of this machine.
func (e *Embedded) URL() string { return e.manager.URL() }

// CalibrateHere scales the models of others for this machine and a network as clients model it, with
// what a Calibrator measures now, busy or not. It does nothing if a model was measured on this
// machine, or none is near. It returns the models that are searched from then on.
func (e *Embedded) CalibrateHere(ctx context.Context, transport, net string, by Calibrator) ([]*model.Model, error) {
	l, ctx, leave, err := e.manager.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	job := here(network{transport, net})
	job.Now = true
	if job.Bases = l.search.bases(job, l.opts.now()); len(job.Bases) > 0 {
		if _, err := l.calibrateBy(ctx, by, job); err != nil {
			return nil, fmt.Errorf("manager: calibrate: %w", err)
		}
	}
	return l.search.library().Models(), nil
}

// closeTimeout bounds how long Close waits for calls. It is short because a connection on
// which a client has not sent anything looks like a call.
const closeTimeout = time.Second

// Close closes the manager and its VMs.
func (e *Embedded) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := e.manager.Close(ctx); err != nil {
		return err
	}
	err := <-e.served
	e.served <- nil // for the next Close
	return err
}
