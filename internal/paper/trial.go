package paper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/ycsb"
)

// Trial is what is measured for one figure or two, as data.
type Trial interface {
	trialName() string
	// plan lists the turns of a trial on a bench. What cannot be measured here is told
	// to the bench, and left out; an error is one of the whole trial.
	plan(b *Bench) (*plan, error)
}

// plan is how a trial is measured.
type plan struct {
	turns []turn
	end   func() error // gives back what the turns have opened; nil: nothing
	need  need         // at the largest, of all turns
}

// turn is what is measured together: everything that is compared, one after the other.
type turn struct {
	name   string
	series []string      // that the turn brings, all of them
	lasts  time.Duration // about, beside what it loads
	loads  load
	// measure measures it. It may open what later turns use as well.
	measure func(ctx context.Context, progress ycsb.Progress) ([]Measurement, error)
}

// load is what a turn needs that is loaded for it, unless it is there: the turn before
// had one of the same name. The zero value is nothing.
type load struct {
	name  string
	lasts time.Duration // about
}

// Bench is where trials are measured.
type Bench struct {
	Scale
	Transport string // how Redy's memory is reached
	Net       string // the network that the transport pretends to be
	// Dir is the directory of the run, for what a trial keeps beside its measurements.
	Dir string
	// Work is an existing directory on a disk, for the files of stores.
	Work string
	// Stock is what there is for trials; the zero value asks nothing.
	Stock Stock
	// CacheServer is the program that is a cache server, as ycsb.Shape.CacheServer.
	CacheServer []string
	// Raw starts the other side of a transport alone, which lends memory bytes to each
	// peer. end ends it.
	Raw func(ctx context.Context, p fabric.Provider, memory int) (addr string, end func() error, err error)
	// Trace is a file of a trace of VMs; empty: one is generated.
	Trace string
	Log   *slog.Logger

	leftOut []LeftOut
}

// manager starts a manager over servers that are reached, and started, as the bench says.
func (b *Bench) manager(ctx context.Context, servers cachebench.Servers, opts manager.EmbedOptions) (*cachebench.Manager, error) {
	servers.Transport, servers.Command, opts.Logger = b.Transport, b.CacheServer, b.Log
	return cachebench.StartManager(ctx, servers, opts)
}

// LeftOut is what was not measured, and why.
type LeftOut struct {
	Trial  string `json:"trial"`
	What   string `json:"what"` // the device, or all of it
	Reason string `json:"reason"`
}

// String is it in words.
func (l LeftOut) String() string { return fmt.Sprintf("%s: %s", l.What, l.Reason) }

// leave notes that something of a trial is left out.
func (b *Bench) leave(trial, what string, reason error) {
	b.leftOut = append(b.leftOut, LeftOut{trial, what, reason.Error()})
}

// errLeftOut marks an error of a plan that has this machine as its cause.
var errLeftOut = errors.New("cannot be measured here")
