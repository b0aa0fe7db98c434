package manager

import (
	"cmp"
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/api"
)

// A manager with an empty catalog takes over the servers of another. It takes nothing from a client that
// uses a cache that it does not know, until an operator says so. Of a client that has ended it takes the
// memory back.
func TestEmptyCatalogTakesNothing(t *testing.T) {
	for _, ends := range []string{"operator", "client"} {
		t.Run(ends, func(t *testing.T) {
			_, before := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour, store: newCrashStore()})
			n := startNode(t, "node")
			ctx, leave := context.WithCancel(t.Context())
			registered, left := make(chan struct{}, 100), make(chan error, 1)
			go func() { left <- n.Announce(ctx, before, func() { registered <- struct{}{} }) }()
			await(t, registered, "registration")
			ca, err := allocateBytes(t, before, 2<<20)
			if err != nil {
				t.Fatal(err)
			}
			server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, n.VM().ControlURL)
			grant := ca.GetGrants()[0]
			lent, err := server.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
				Terms: grant.GetTerms(), Token: grant.GetToken(), Configuration: ca.GetConfiguration(),
			}))
			if err != nil {
				t.Fatal(err)
			}
			p, err := transport.Open("mem")
			if err != nil {
				t.Fatal(err)
			}
			qp, err := p.Dial(t.Context(), lent.Msg.GetFabricAddr(), redywire.Hello{Ticket: redywire.Ticket(lent.Msg.GetTicket()), Batch: 1, Depth: 1}.Encode(), 1)
			if err != nil {
				t.Fatal(err)
			}
			closed := false
			closeAll := func() {
				if closed {
					return
				}
				closed = true
				if err := qp.Close(); err != nil {
					t.Error(err)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
			t.Cleanup(closeAll)

			leave()
			if err := testrun.Receive(t, "the server leaves the first manager", left); err != nil {
				t.Fatal(err)
			}
			m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Second, store: newCrashStore()})
			await(t, announce(t, n, client), "registration")
			testrun.Until(t, "the manager sees that a client uses memory of no cache", func() bool { return m.Metrics().UnknownGrants == 1 })
			if free := n.VM().Free; free != 6<<20 {
				t.Fatalf("%d bytes are free while a client uses 2 MiB of 8", free)
			}
			if got, err := allocateBytes(t, client, 8<<20); connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("its memory is lent again: %v, %v", got, err)
			}

			if ends == "client" {
				closeAll()
			} else if a, err := client.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil || !a.Msg.GetExisted() {
				t.Errorf("Deallocate: %v, %v", a, err)
			}
			testrun.Until(t, "the memory is free", func() bool {
				_, err := allocateBytes(t, client, 8<<20)
				return err == nil
			})
			if n := m.Metrics().UnknownGrants; n != 0 {
				t.Errorf("%d unknown grants", n)
			}
			m.led().state.check(t)
		})
	}
}

// Whom an audit leaves what it uses: clients of grants that the catalog never gave.
func TestStrays(t *testing.T) {
	m, client := serve(t, Options{})
	c := m.led().state
	if err := c.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.deallocate(ended.GetCacheId(), nil, time.Now(), "deallocated"); err != nil {
		t.Fatal(err)
	}
	const enough = time.Minute
	for name, tc := range map[string]struct {
		cache  string
		grant  string
		silent time.Duration
		left   bool
	}{
		"of a cache that has dropped it":         {cache: ca.GetCacheId(), left: true},
		"that another catalog gave a cache":      {cache: ca.GetCacheId(), grant: grantID(2)},
		"of another catalog, not used for long":  {cache: ca.GetCacheId(), grant: grantID(3), silent: enough, left: true},
		"of a cache that has ended":              {cache: ended.GetCacheId(), grant: grantID(2), left: true},
		"of an unknown cache, used":              {cache: "another's"},
		"of an unknown cache, lately used":       {cache: "another's", silent: enough - time.Second},
		"of an unknown cache, not used for long": {cache: "another's", silent: enough, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Now()
			audit := func() (left, stay []stray) {
				return c.audited("a", []*serverv1.Grant{{CacheId: tc.cache, Id: cmp.Or(tc.grant, name), Regions: 1, SilentMs: tc.silent.Milliseconds()}}, at, enough)
			}
			if left, stay := audit(); len(left)+len(stay) > 0 {
				t.Errorf("at first sight: %v leave, %v stay", left, stay)
			}
			at = at.Add(enough)
			if left, stay := audit(); (len(left) == 1) != tc.left || (len(stay) == 1) == tc.left {
				t.Errorf("%v leave, %v stay", left, stay)
			}
			if _, stay := audit(); len(stay) > 0 {
				t.Errorf("reported again: %v", stay)
			}
		})
	}
}
