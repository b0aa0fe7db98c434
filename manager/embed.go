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
	// [allocator.InProcess] over mem, with the machine's memory.
	Allocator allocator.Allocator
	// VMMemory is as in [Options].
	VMMemory uint64
	// Economy is as in [Options].
	Economy Economy
	// Lease is as in [Options]. Default: none, as a cache of this process ends with it.
	Lease time.Duration
	// Models and SLOMargin are as in [Options].
	Models    []*model.Model
	SLOMargin float64
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
	if opts.Allocator == nil {
		a, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: opts.Logger})
		if err != nil {
			return nil, err
		}
		opts.Allocator = a
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("manager: embed: %w", err), opts.Allocator.Close())
	}
	url := "http://" + ln.Addr().String()
	m, err := New(Options{
		Allocator: opts.Allocator, VMMemory: opts.VMMemory, URL: url,
		Economy: opts.Economy, Lease: cmp.Or(opts.Lease, -1), Models: opts.Models, SLOMargin: opts.SLOMargin, Logger: opts.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close(), opts.Allocator.Close())
	}
	e := &Embedded{Client: access.Dial(url), manager: m, served: make(chan error, 1)}
	go func() { e.served <- m.Serve(ln) }()
	return e, nil
}

// URL returns the URL of the control API, for other processes of this machine.
func (e *Embedded) URL() string { return e.manager.URL() }

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
