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

// Trial defines, as data, the measurements for one or two figures.
type Trial interface {
	trialName() string
	// plan lists the turns of a trial on a bench. It reports parts that cannot be measured
	// here to the bench and leaves them out. An error concerns the whole trial.
	plan(b *Bench) (*plan, error)
}

// plan says how a trial is measured.
type plan struct {
	name  string // of the trial, set by prepare
	turns []turn
	end   func() error // releases what the turns have opened; nil if there is nothing
	need  need         // the largest need of all turns
}

// turn measures everything that is compared, one after the other.
type turn struct {
	name   string
	series []string      // all series that the turn measures
	lasts  time.Duration // estimate, without loading
	loads  load
	done   bool // it has been measured; set by prepare
	// measure runs the turn. It may open what later turns use as well.
	measure func(ctx context.Context, progress ycsb.Progress) ([]Measurement, error)
}

// load is data that a turn needs. It is loaded unless the previous turn had a load of the same
// name. The zero value is nothing.
type load struct {
	name  string
	lasts time.Duration // estimate
}

// Bench is the environment in which trials run.
type Bench struct {
	Scale
	Transport string // transport to Redy's memory
	Net       string // modelled network of the transport
	// Dir is the directory of the run, for files that a trial stores beside its measurements.
	Dir string
	// Work is an existing directory on a disk, for the files of stores.
	Work string
	// Stock is the capacity available to trials. The zero value disables the check.
	Stock Stock
	// CacheServer is the command of a cache server, as in ycsb.Shape.CacheServer.
	CacheServer []string
	// Raw starts the remote side of the transport alone, which lends memory bytes to each
	// peer. end stops it.
	Raw func(ctx context.Context, p fabric.Provider, memory int) (addr string, end func() error, err error)
	// Trace is a file with a trace of VMs. If empty, one is generated.
	Trace string
	Log   *slog.Logger

	leftOut []LeftOut
}

// manager starts a manager with servers that use the bench's transport and command.
func (b *Bench) manager(ctx context.Context, servers cachebench.Servers, opts manager.EmbedOptions) (*cachebench.Manager, error) {
	servers.Transport, servers.Command, opts.Logger = b.Transport, b.CacheServer, b.Log
	return cachebench.StartManager(ctx, servers, opts)
}

// LeftOut is something that was not measured, with the reason.
type LeftOut struct {
	Trial  string `json:"trial"`
	What   string `json:"what"` // the device, or "all"
	Reason string `json:"reason"`
}

// String describes it in words.
func (l LeftOut) String() string { return fmt.Sprintf("%s: %s", l.What, l.Reason) }

// leave records that a part of a trial is left out.
func (b *Bench) leave(trial, what string, reason error) {
	b.leftOut = append(b.leftOut, LeftOut{trial, what, reason.Error()})
}

// errLeftOut marks an error of a plan that is caused by this machine.
var errLeftOut = errors.New("cannot be measured here")
