package manager

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/node"
)

// Options configure a manager.
type Options struct {
	// Allocator launches VMs where they are cheaper than the pool of registered servers, or
	// the pool lacks memory. The manager owns it and closes it. Default: none; only the
	// pool (stranded memory) is used.
	Allocator allocator.Allocator
	// Transport is the default of requests. Default: the allocator's; tcp without one.
	Transport string
	// VMMemory is the maximum of one launched VM's memory in bytes, where VMs have any
	// size. Default: no limit.
	VMMemory uint64
	// URL is the URL of the control API for servers and clients. Default: the address of
	// Serve's listener.
	URL string
	// Managers are the URLs of all managers of the catalog, separated by commas, which launched
	// servers call: they follow the leader. Default: URL.
	Managers string
	// State is the directory of a catalog, from which a restarted manager restores its
	// state. It is created if it does not exist. Default: Catalog.
	State string
	// Catalog is the URL of the catalog, as [catalog.Open] takes it, with the environment's
	// [catalog.Options]: several managers may share one in etcd. Default: memory, which a
	// restart forgets.
	Catalog string
	// Moved permits a State of a manager at another URL. Servers and clients that still
	// call that URL are lost. Default: Serve returns [ErrStateAddress].
	Moved bool
	// TLS configures the control API's server, as net/http uses it. Default: no TLS.
	TLS *tls.Config
	// Tokens returns the valid tokens; it is called for each call of the control API.
	// Default: calls need no token.
	Tokens func() *access.TokenSet
	// ServerTLS is used to call control APIs of servers with TLS
	// (node.Options.ControlTLS). Default: the system's root certificates.
	ServerTLS *tls.Config
	// Access are the credentials that launched servers use to call the manager, except the
	// token: each server gets its own.
	Access access.Credentials
	// LaunchTimeout bounds how long a launched VM may take to register, without the time that
	// the allocator says it waits. Default: 30 s.
	LaunchTimeout time.Duration
	// GiveWay is how long two requests may wait for VMs of one kind for which the allocator has no
	// room, while both hold some. Then the younger one ends, as if the kind were sold out. It has
	// to be longer than the allocator's provider takes to add machines. Default: 5 min.
	GiveWay time.Duration
	// Provision is the time to launch a VM. It has to fit into the notice of a spot VM
	// (A28). Default: 2 s, enough for a process.
	Provision time.Duration
	// MigrationRate is the rate in bytes a second at which memory leaves a VM, for a client whose
	// caches have not measured it, until at least three others have: then it is their median. Default:
	// New measures it if the allocator simulates a market with spot VMs; else it is unknown, and
	// such a client gets no spot VMs.
	MigrationRate float64
	// NoticeMargin is the part of a notice that is kept in reserve. Default: 5 s.
	NoticeMargin time.Duration
	// MinLifetime is the minimum of a spot VM's expected lifetime. Default: 2 min.
	MinLifetime time.Duration
	// Economy configures voluntary moves of caches.
	Economy Economy
	// Warm are the pools of VMs that are kept ready as targets of migrations. Default: none.
	Warm []WarmPool
	// Predictor predicts the lifetimes of spot VMs. Default: allocator.NewPredictor.
	Predictor allocator.Predictor
	// Heartbeat is the interval of registered servers' heartbeats. Default: 5 s.
	Heartbeat time.Duration
	// Silence is the time without heartbeats after which a server is suspected, or counts
	// as failed if it has no grants. Default: 5 heartbeats.
	Silence time.Duration
	// Lease is the time after which a cache is deallocated unless its client renews it;
	// negative: caches need no renewal. Default: 30 s.
	Lease time.Duration
	// RenewalGrace is how long a lease goes on while its client's renewals are refused for their
	// token. Negative: not at all. Default: DefaultRenewalGrace.
	RenewalGrace time.Duration
	// MaxLinger is the maximum time for which a cache is kept after its lease has ended, for
	// another client to take it up; clients ask for less or nothing. Negative: none. Default: one
	// day; at most 29 days.
	MaxLinger time.Duration
	// EnforceDuration deallocates caches at the end of their duration. Default: the
	// duration only affects the choice of VMs.
	EnforceDuration bool
	// Models are searched for configurations that meet an SLO, before those that come with
	// the program. They must be of Transport.
	Models []*model.Model
	// SLOMargin is the part of each of an SLO's bounds by which a predicted performance has
	// to be better; negative: none. Default: DefaultSLOMargin.
	SLOMargin float64
	// UncalibratedMargin is the same for predictions by models of other machines, which nothing
	// measured here scales or corrects; SLOMargin if that is larger. Negative: SLOMargin. Default:
	// DefaultUncalibratedMargin.
	UncalibratedMargin float64
	// SLOStrict refuses SLOs for which there are only such predictions.
	SLOStrict bool
	// Calibrate measures servers of a kind of machine for which there is no model. Default: none are
	// measured.
	Calibrate Calibrator
	// SLOWatch says what is done with what clients measure. Default: Correct.
	SLOWatch SLOWatch
	// SLOChanges is the maximum of changes an hour that a cache is asked to make for its SLO.
	// Default: DefaultSLOChanges.
	SLOChanges int
	// Pages, if set, adds pages for people to the manager's address. operator returns the error of
	// a request without an operator's token.
	Pages func(mux *http.ServeMux, operator func(*http.Request) error)
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger

	now    func() time.Time // for tests
	store  catalog.Store    // for tests, instead of State
	byHand bool             // tests call keepDue

	stuckAfter time.Duration // stuckAfter, except in tests
}

// openCatalog opens the catalog.
func (o *Options) openCatalog() (catalog.Store, error) {
	if o.State != "" {
		return catalog.OpenPebble(o.State, o.Logger)
	}
	from := catalog.FromEnv()
	from.Logger = o.Logger
	return catalog.Open(cmp.Or(o.Catalog, memoryCatalog), from)
}

// durable reports whether the catalog outlives the manager.
func (o *Options) durable() bool {
	return o.State != "" || o.store != nil || o.Catalog != "" && !strings.HasPrefix(o.Catalog, memoryCatalog)
}

// memoryCatalog is the URL of a catalog in memory.
const memoryCatalog = "memory:"

func (o *Options) ensureDefaults() error {
	if o.Transport == "" {
		o.Transport = "tcp"
		if o.Allocator != nil {
			o.Transport = o.Allocator.Transport()
		}
	}
	o.LaunchTimeout = cmp.Or(o.LaunchTimeout, 30*time.Second)
	o.GiveWay = cmp.Or(o.GiveWay, 5*time.Minute)
	o.Provision = cmp.Or(o.Provision, 2*time.Second)
	o.NoticeMargin = cmp.Or(o.NoticeMargin, 5*time.Second)
	o.MinLifetime = cmp.Or(o.MinLifetime, 2*time.Minute)
	o.Predictor = cmp.Or(o.Predictor, allocator.NewPredictor())
	if err := o.Economy.ensureDefaults(); err != nil {
		return err
	}
	if o.SLOMargin = max(0, cmp.Or(o.SLOMargin, DefaultSLOMargin)); !(o.SLOMargin <= MaxSLOMargin) {
		return fmt.Errorf("manager: SLO margin %v: want at most %v", o.SLOMargin, MaxSLOMargin)
	}
	if o.UncalibratedMargin = max(o.SLOMargin, cmp.Or(o.UncalibratedMargin, DefaultUncalibratedMargin)); !(o.UncalibratedMargin <= MaxSLOMargin) {
		return fmt.Errorf("manager: uncalibrated margin %v: want at most %v", o.UncalibratedMargin, MaxSLOMargin)
	}
	if o.SLOChanges = cmp.Or(o.SLOChanges, DefaultSLOChanges); o.SLOChanges < 0 || o.SLOWatch < Correct || o.SLOWatch > Ignore {
		return fmt.Errorf("manager: SLO watch %d, %d changes an hour: want a mode, and 1 change or more", o.SLOWatch, o.SLOChanges)
	}
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	o.Silence = cmp.Or(o.Silence, 5*o.Heartbeat)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.RenewalGrace = max(0, cmp.Or(o.RenewalGrace, DefaultRenewalGrace))
	if o.MaxLinger = max(0, cmp.Or(o.MaxLinger, DefaultMaxLinger)); o.MaxLinger > MostLinger {
		return fmt.Errorf("manager: max linger %v: want at most %v", o.MaxLinger, MostLinger)
	}
	o.stuckAfter = cmp.Or(o.stuckAfter, stuckAfter)
	if o.now == nil {
		o.now = time.Now
	}
	if !(o.MigrationRate >= 0 && o.MigrationRate <= node.MaxMemory) {
		return fmt.Errorf("manager: migration rate %v: want 0 (not known) to %v bytes a second", o.MigrationRate, uint64(node.MaxMemory))
	}
	if o.Lease > 0 && o.Lease < time.Millisecond {
		return fmt.Errorf("manager: lease %v: want 1ms or more", o.Lease)
	}
	if o.LaunchTimeout < 0 || o.GiveWay < 0 || o.Heartbeat < time.Millisecond || o.Silence < o.Heartbeat {
		return fmt.Errorf("manager: launch timeout %v, give way %v, heartbeat %v, silence %v: want a heartbeat of 1ms or more and a silence not below it", o.LaunchTimeout, o.GiveWay, o.Heartbeat, o.Silence)
	}
	o.Logger = cmp.Or(o.Logger, slog.Default()).With("component", "manager")
	return nil
}
