package catalog

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// EtcdOptions are the options of [OpenEtcd].
type EtcdOptions struct {
	// Endpoints are the members of the cluster, HOST:PORT.
	Endpoints []string
	// Prefix begins the keys of the catalog. Default: /redykv.
	Prefix string
	// TLS is the configuration of connections; nil: they are not encrypted.
	TLS *tls.Config
	// User and Password are the login. Default: none.
	User, Password string
	// LeaseTTL is the time after which a leader that does not answer is replaced, in whole
	// seconds, unless etcd itself has just elected a leader, which renews all leases. Default:
	// 5 s. Minimum: 2 s, for which it may take 3 s.
	LeaseTTL time.Duration
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix   = "/redykv"
	defaultLeaseTTL = 5 * time.Second
	minLeaseTTL     = 2 * time.Second // etcd's own minimum with its default timeouts
	// etcdLate is how much shorter the lease is for which etcd is asked, if that is not below
	// the minimum: etcd looks for ended leases twice a second, and then deletes their keys.
	etcdLate = time.Second
)

func (o *EtcdOptions) ensureDefaults() error {
	if len(o.Endpoints) == 0 {
		return errors.New("etcd needs at least one HOST:PORT")
	}
	for _, e := range o.Endpoints {
		if host, port, err := net.SplitHostPort(e); err != nil || host == "" || port == "" {
			return fmt.Errorf("etcd member %.100q: want HOST:PORT", e)
		}
	}
	o.Prefix = "/" + strings.Trim(cmp.Or(o.Prefix, defaultPrefix), "/") + "/"
	o.LeaseTTL = cmp.Or(o.LeaseTTL, defaultLeaseTTL)
	if o.LeaseTTL < minLeaseTTL || o.LeaseTTL%time.Second != 0 {
		return fmt.Errorf("lease %v: want whole seconds, at least %v", o.LeaseTTL, minLeaseTTL)
	}
	if (o.User == "") != (o.Password == "") {
		return errors.New("etcd needs user and password, or neither")
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return nil
}

// Etcd is a store in etcd, for several managers. Its keys, after the prefix:
//
//	format         the version of the catalog
//	record/KEY     the records
//	leader/LEASE   the candidates' URLs, each with its candidate's lease; the oldest key is
//	               that of the leader
//	txn            term and number of the last Commit
type Etcd struct {
	o      EtcdOptions
	ctx    context.Context // ended by Close
	cancel context.CancelFunc
	once   sync.Once     // of Close
	seat   chan struct{} // has an element during a Campaign and its term, and after Close
	work   sync.WaitGroup
	term   atomic.Pointer[etcdTerm] // the last term; nil: none
	mirror atomic.Pointer[mirror]   // of the present Campaign; nil: none
	// trouble is set by failed renewals and Campaigns, and cleared by successful ones.
	trouble atomic.Pointer[trouble]
	stood   bool // a Campaign has called replace; owned by the holder of seat

	mu     sync.Mutex         // guards client and stale
	client *clientv3.Client   // nil: not connected yet
	stale  []clientv3.LeaseID // leases of earlier terms and processes, to be revoked
}

var (
	_ Store = (*Etcd)(nil)
	_ Term  = (*etcdTerm)(nil)
)

// OpenEtcd returns a store in etcd. It does not connect: Campaign waits for a server.
func OpenEtcd(o EtcdOptions) (*Etcd, error) {
	if err := o.ensureDefaults(); err != nil {
		return nil, err
	}
	s := &Etcd{o: o, seat: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Close does not revoke the lease, as Resign does.
func (s *Etcd) Close() (err error) {
	s.once.Do(func() {
		s.cancel()
		s.seat <- struct{}{} // Campaign and term have ended
		s.work.Wait()
		if s.client != nil {
			err = s.client.Close()
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (s *Etcd) Leader() string {
	if t := s.term.Load(); t != nil && t.elected.Load() && !t.over() {
		return t.url
	}
	if m := s.mirror.Load(); m != nil {
		return m.leader().url
	}
	return ""
}

// trouble is a time during which etcd fails.
type trouble struct {
	since time.Time
	err   error // the last one
}

func (s *Etcd) Trouble() error {
	bad := s.trouble.Load()
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%w (for %v)", s.named(bad.err), time.Since(bad.since).Round(time.Second))
}

// fails notes an error for Trouble.
func (s *Etcd) fails(err error) {
	bad := &trouble{time.Now(), err}
	if earlier := s.trouble.Load(); earlier != nil {
		bad.since = earlier.since
	}
	s.trouble.Store(bad)
}

// named returns an error with the addresses of etcd.
func (s *Etcd) named(err error) error {
	return fmt.Errorf("etcd %s: %w", strings.Join(s.o.Endpoints, ","), err)
}

func (s *Etcd) Shared() bool { return true }

// reconnects are the pauses before connections to a member that was away. The default's
// maximum is two minutes.
var reconnects = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: maxPause},
	MinConnectTimeout: time.Second,
}

// connect returns the client. A login needs a server.
func (s *Etcd) connect() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	scheme := "http://"
	if s.o.TLS != nil {
		scheme = "https://"
	}
	endpoints := make([]string, len(s.o.Endpoints))
	for i, e := range s.o.Endpoints {
		endpoints[i] = scheme + e
	}
	var err error
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  s.o.TLS,
		Username:             s.o.User,
		Password:             s.o.Password,
		Context:              s.ctx,
		DialTimeout:          s.o.LeaseTTL / 2,
		DialKeepAliveTime:    10 * time.Second, // gRPC's minimum
		DialKeepAliveTimeout: s.o.LeaseTTL / 2,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(reconnects), grpc.WithChainUnaryInterceptor(s.bounded)},
		Logger:               zap.NewNop(),
	})
	return s.client, classify(err)
}

// bounded gives up a request that a member does not answer. If its caller has set no earlier
// deadline, the client then repeats it, at another member.
func (s *Etcd) bounded(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	return invoke(ctx, method, req, reply, conn, opts...)
}

// request returns a context for one request.
func (s *Etcd) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.o.LeaseTTL/2)
}

// checkFormat writes the format record of a new catalog, and checks that of an old one.
func (s *Etcd) checkFormat(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	key := s.o.Prefix + formatKey
	resp, err := client.Txn(ctx).Then(
		clientv3.OpGet(key),
		clientv3.OpGet(s.o.Prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1)),
	).Commit()
	if err != nil {
		return classify(err)
	}
	formats, some := resp.Responses[0].GetResponseRange(), resp.Responses[1].GetResponseRange()
	format := ""
	if len(formats.Kvs) > 0 {
		format = string(formats.Kvs[0].Value)
	}
	switch {
	case format == formatValue:
		return nil
	case len(some.Kvs) > 0:
		return fmt.Errorf("%w: %s is %.40q, want %q", ErrFormat, key, format, formatValue)
	}
	// Another candidate may be writing it.
	_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, formatValue)).Commit()
	return classify(err)
}

// revoke revokes the stale leases.
func (s *Etcd) revoke(ctx context.Context) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	s.mu.Lock()
	client, stale := s.client, slices.Clone(s.stale)
	s.mu.Unlock()
	if client == nil {
		return nil
	}
	for _, lease := range stale {
		if _, err := client.Revoke(ctx, lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return classify(err)
		}
		s.mu.Lock()
		s.stale = slices.DeleteFunc(s.stale, func(l clientv3.LeaseID) bool { return l == lease })
		s.mu.Unlock()
	}
	return nil
}

// classify returns an error that says what a caller can do: ErrFull, ErrUnavailable, or
// another one, which needs an operator.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrAuthOldRevision):
		return fmt.Errorf("%w: %w", ErrUnavailable, err) // the client logs in again
	}
	code := status.Code(err)
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = e.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.Unimplemented:
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
