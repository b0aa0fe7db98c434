package redytier

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// slowServers is a transport to servers on which calls of Connect wait for a condition.
type slowServers struct {
	calls atomic.Int32 // that wait, or have waited
	ready func() bool
}

func (s *slowServers) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/Connect") {
		s.calls.Add(1)
		for !s.ready() {
			select {
			case <-req.Context().Done():
				return nil, context.Cause(req.Context())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return http.DefaultTransport.RoundTrip(req)
}

// leasing is a manager that counts renewals, and ends the lease after some.
type leasing struct {
	Manager
	renewed atomic.Int32
	last    int32 // renewals before the lease ends; 0: it does not end
}

func (l *leasing) Renew(context.Context, *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error) {
	if n := l.renewed.Add(1); l.last > 0 && n > l.last {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such cache"))
	}
	return connect.NewResponse(&managerv1.RenewResponse{LeaseMs: 40}), nil
}

// A cache's servers are asked for memory at the same time, and its lease is renewed meanwhile.
func TestLeaseIsRenewedWhileServersConnect(t *testing.T) {
	const vms = 5
	for name, last := range map[string]int32{"renewed": 0, "ends": 2} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "mem", vms, 1<<20)
			c.spoil = func(m *managerv1.AllocateResponse) { m.LeaseMs = 40 }
			mgr := &leasing{Manager: c.client, last: last}
			servers := &slowServers{}
			servers.ready = func() bool { return servers.calls.Load() == vms && last == 0 && mgr.renewed.Load() >= 3 }
			cache, err := Create(t.Context(), mgr, Config{
				Capacity: vms << 14, RegionSize: 1 << 14, Logger: slog.New(slog.DiscardHandler),
				control: &http.Client{Transport: servers},
			})
			if last > 0 {
				if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "lease ended") {
					t.Errorf("Create with a lease that ends: %v", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			if cache != nil {
				if err := cache.Delete(t.Context()); err != nil {
					t.Error(err)
				}
			}
			c.nothingLeft(t)
		})
	}
}
