package catalog

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/redykv/redykv/internal/clock"
)

// Campaign tries until it succeeds, and logs why it waits.
func (s *Etcd) Campaign(ctx context.Context, url string) (Term, error) {
	select {
	case s.seat <- struct{}{}:
	case <-s.ctx.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := joined(ctx, s.ctx)
	defer cancel()
	t, err := s.campaign(ctx, url)
	if err == nil {
		s.work.Go(func() {
			<-t.released
			<-s.seat
		})
		return t, nil
	}
	<-s.seat
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, s.named(err)
}

// joined returns a context that ends with either of two.
func joined(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Pauses between tries.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

func (s *Etcd) campaign(ctx context.Context, url string) (*etcdTerm, error) {
	defer s.mirror.Store(nil)
	logged := ""
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		t, err := s.candidate(ctx, url)
		switch {
		case err == nil:
			return t, nil
		case ctx.Err() != nil:
			return nil, err
		case !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrFull) && !errors.Is(err, ErrNotLeader):
			return nil, err
		}
		if errors.Is(err, ErrUnavailable) {
			err = cmp.Or(s.unreachable(ctx), err)
		}
		if !errors.Is(err, ErrNotLeader) {
			s.fails(err)
			if err.Error() != logged {
				logged = err.Error()
				s.o.Logger.Warn("election of a leader waits for etcd", "err", err)
			}
		}
		if !clock.Sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

// unreachable returns why no member can be reached; nil: one can. The client itself does
// not tell.
func (s *Etcd) unreachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.LeaseTTL)
	defer cancel()
	dial := new(net.Dialer).DialContext
	if s.o.TLS != nil {
		dial = (&tls.Dialer{Config: s.o.TLS}).DialContext
	}
	outcomes := make(chan error, len(s.o.Endpoints))
	for _, e := range s.o.Endpoints {
		s.work.Go(func() {
			conn, err := dial(ctx, "tcp", e)
			if err == nil {
				_ = conn.Close()
			}
			outcomes <- err
		})
	}
	var reasons []string
	for range s.o.Endpoints {
		err := <-outcomes
		if err == nil {
			return nil
		}
		reasons = append(reasons, err.Error())
	}
	slices.Sort(reasons) // the same reasons are logged once
	return fmt.Errorf("%w: %s", ErrUnavailable, strings.Join(reasons, "; "))
}

// candidate stands for election with a new lease, and waits until it is elected.
func (s *Etcd) candidate(ctx context.Context, url string) (_ *etcdTerm, err error) {
	client, err := s.connect()
	if err != nil {
		return nil, err
	}
	if err := s.checkFormat(ctx, client); err != nil {
		return nil, err
	}
	m := s.mirror.Load()
	if m == nil {
		m = newMirror(client, s.o.Prefix)
		s.mirror.Store(m)
	}
	mirroring, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(mirroring)
	}()
	defer func() { stop(); <-ended }()

	// etcd sends changes at once to a watch that began before them, others up to 0.1 s later.
	if err := s.awaitWatch(ctx, m); err != nil {
		return nil, err
	}
	s.replace(m, url)
	if err := s.revoke(ctx); err != nil {
		return nil, err
	}
	t, err := s.newTerm(ctx, client, url)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.end()
			<-t.released
		}
	}()
	waiting, cancel := joined(ctx, t.ctx)
	defer cancel()
	if err := t.elect(waiting); err != nil {
		return nil, cmp.Or(t.overError(), err)
	}
	// After begin's change, no earlier leader can make one. A mirror that has it has all of theirs.
	if err := t.begin(waiting); err != nil {
		return nil, err
	}
	if err := m.wait(waiting, func() bool { return m.revision >= t.last }); err != nil {
		return nil, cmp.Or(t.overError(), err)
	}
	t.mirror = m
	t.elected.Store(true)
	return t, nil
}

// awaitWatch waits until a mirror that runs follows etcd. It has no lease whose renewals would find that etcd
// has gone away, so it looks itself: until the mirror is loaded, which may take long, whether a member can be
// reached at all.
func (s *Etcd) awaitWatch(ctx context.Context, m *mirror) error {
	for {
		soon, cancel := s.request(ctx)
		err := m.wait(soon, func() bool { return m.watching })
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := s.unreachable(ctx); err != nil {
			return err
		}
		if m.loaded() {
			return fmt.Errorf("%w: it does not say what changes", ErrUnavailable)
		}
	}
}

// replace makes the leases of candidates with this URL stale in the store's first Campaign:
// their process has ended, because this one listens at the URL. Managers on two hosts have one
// URL by mistake if it is a loopback address. So later Campaigns wait for such a lease, and the
// two do not depose one another for ever.
func (s *Etcd) replace(m *mirror, url string) {
	if s.stood || url == "" {
		return
	}
	s.stood = true
	if dead := m.leases(url); len(dead) > 0 {
		s.o.Logger.Warn("manager replaces the earlier process at its URL, which no other manager may have", "url", url)
		s.mu.Lock()
		s.stale = append(s.stale, dead...)
		s.mu.Unlock()
	}
}

// elect writes the candidate's key, and waits until those of all older candidates are gone.
// It does not notice that the candidate's own key is gone, too; begin does.
func (t *etcdTerm) elect(ctx context.Context) error {
	// When ctx ends, Campaign resigns by its client's context. It is ctx, too, so that
	// Campaign does not wait for a server that hangs. The next Campaign revokes the lease.
	client := clientv3.NewCtxClient(ctx)
	client.KV, client.Lease, client.Watcher = t.client.KV, t.client.Lease, t.client.Watcher
	session, err := concurrency.NewSession(client, concurrency.WithLease(t.lease))
	if err != nil {
		return classify(err)
	}
	session.Orphan() // renew renews the lease, as a Session does not tell when it sent a renewal
	e := concurrency.NewElection(session, t.s.o.Prefix+leaderKey)
	// A member that has lost the others ends the watch, so that it can begin at another one.
	if err := e.Campaign(clientv3.WithRequireLeader(ctx), t.url); err != nil {
		return classify(err)
	}
	t.key, t.rev = e.Key(), e.Rev()
	return nil
}
