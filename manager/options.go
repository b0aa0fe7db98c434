package manager

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/node"
)

// Options say where a manager's VMs come from and how it watches them.
type Options struct {
	// Allocator launches VMs where the pool of registered servers does not
	// hold a cache. The manager owns it and closes it. nil: the pool is all
	// there is (stranded memory).
	Allocator allocator.Allocator
	// Transport is used for requests that name none. Default: the allocator's;
	// tcp without one.
	Transport string
	// VMMemory is the most memory in bytes of one launched VM; a larger cache
	// gets several. Default: no limit.
	VMMemory uint64
	// URL is where servers and clients reach this manager. Default: the address
	// given to Serve.
	URL string
	// State is the directory in which the manager keeps its catalog, so that
	// another one can go on where this one ends. It is made if it does not exist.
	// Default: none; what the manager knows ends with it.
	State string
	// Moved has Serve go on although what State knows calls a manager at another URL: a
	// server that is not heard, and a cache whose client is not, is lost then. Default:
	// that is an [ErrStateAddress], and nothing is lost.
	Moved bool
	// TLS is how the control API is served; its certificates are as net/http wants
	// them. Default: not secured.
	TLS *tls.Config
	// Tokens are those that let callers in, asked for with each call; nil: whoever
	// reaches the control API may call it.
	Tokens func() []access.Token
	// ServerTLS is how the control APIs of servers are called that have TLS
	// (node.Options.ControlTLS). Default: by the certificates that the system trusts.
	ServerTLS *tls.Config
	// Access is what launched servers need beside a token, of which the manager gives
	// each its own: how they know the manager, and what they show it.
	Access access.Credentials
	// LaunchTimeout bounds how long a launched VM may take to register.
	// Default: 30 s.
	LaunchTimeout time.Duration
	// Provision is how long a new VM takes until it can hold memory: part of the
	// notice of a spot VM (A28). Default: 2 s, plenty for a process.
	Provision time.Duration
	// MigrationRate is how many bytes a second leave a VM that is reclaimed, until
	// caches have reported what they measured. Default: what New measures, where the
	// allocator's VMs are of this machine and some are spot VMs; else it is not known,
	// and no spot VM is used until a cache has reported.
	MigrationRate float64
	// NoticeMargin is what is kept of a notice for whatever else takes time. Default:
	// 5 s.
	NoticeMargin time.Duration
	// MinLifetime is how long a spot VM has to be expected to live. Default: 2 min.
	MinLifetime time.Duration
	// Economy says when caches move to other VMs although theirs are still there.
	Economy Economy
	// Warm are VMs that are kept ready as targets of migrations. Default: none.
	Warm []WarmPool
	// allocator.Predictor says how long spot VMs are expected to live. Default: allocator.NewPredictor.
	Predictor allocator.Predictor
	// Heartbeat is how often registered servers have to call. Default: 1 s.
	Heartbeat time.Duration
	// Silence is how long a registered server may stay silent before it is suspected,
	// or given up if no cache has anything there. Default: 5 heartbeats.
	Silence time.Duration
	// Lease is how long a cache lives that is not renewed; negative: until it is
	// deallocated. Default: 30 s.
	Lease time.Duration
	// EnforceDuration has caches deallocated that are older than they were expected to
	// become. Default: they live on; their duration says only which VMs they may have.
	EnforceDuration bool
	// Models are searched for configurations that meet an SLO, before those that come
	// with the program. They have to be of Transport.
	Models []*model.Model
	// SLOMargin is how much better than an SLO a configuration has to be predicted, as
	// a part of each of its bounds; negative: not at all. Default: DefaultSLOMargin.
	SLOMargin float64
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger

	now   func() time.Time // for tests
	store catalog.Store    // for tests, in the place of State
}

func (o *Options) ensureDefaults() error {
	if o.Transport == "" {
		o.Transport = "tcp"
		if o.Allocator != nil {
			o.Transport = o.Allocator.Transport()
		}
	}
	if o.LaunchTimeout == 0 {
		o.LaunchTimeout = 30 * time.Second
	}
	o.Provision = cmp.Or(o.Provision, 2*time.Second)
	o.NoticeMargin = cmp.Or(o.NoticeMargin, 5*time.Second)
	o.MinLifetime = cmp.Or(o.MinLifetime, 2*time.Minute)
	if o.Predictor == nil {
		o.Predictor = allocator.NewPredictor()
	}
	if err := o.Economy.ensureDefaults(); err != nil {
		return err
	}
	if o.SLOMargin = max(0, cmp.Or(o.SLOMargin, DefaultSLOMargin)); !(o.SLOMargin <= MaxSLOMargin) {
		return fmt.Errorf("manager: SLO margin %v: want at most %v", o.SLOMargin, MaxSLOMargin)
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = time.Second
	}
	if o.Silence == 0 {
		o.Silence = 5 * o.Heartbeat
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.now == nil {
		o.now = time.Now
	}
	if !(o.MigrationRate >= 0 && o.MigrationRate <= node.MaxMemory) {
		return fmt.Errorf("manager: migration rate %v: want 0 (not known) to %v bytes a second", o.MigrationRate, uint64(node.MaxMemory))
	}
	if o.Lease > 0 && o.Lease < time.Millisecond {
		return fmt.Errorf("manager: lease %v: want 1ms or more", o.Lease)
	}
	if o.LaunchTimeout < 0 || o.Heartbeat < time.Millisecond || o.Silence < o.Heartbeat {
		return fmt.Errorf("manager: launch timeout %v, heartbeat %v, silence %v: want a heartbeat of 1ms or more and a silence not below it", o.LaunchTimeout, o.Heartbeat, o.Silence)
	}
	o.Logger = o.Logger.With("component", "manager")
	return nil
}
