package manager

import (
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/manager/api"
)

// A cache server accepts only its manager, and clients with a grant; those only for their
// own grants.
func TestStrangers(t *testing.T) {
	m, client := serve(t, Options{Transport: "mem"})
	n := startNode(t, "node")
	registered := announce(t, n, client)
	await(t, registered, "registration")
	mine, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	yours, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	giveBack := borrow(t, n, mine)
	ctx := testContext(t)
	server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, n.VM().ControlURL)
	grant := mine.GetGrants()[0]
	for name, call := range map[string]func() error{
		"connect with no token": func() error {
			_, err := server.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{Terms: grant.GetTerms()}))
			return err
		},
		"connect with another's token": func() error {
			_, err := server.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
				Terms: grant.GetTerms(), Token: yours.GetGrants()[0].GetToken(),
			}))
			return err
		},
		"disconnect a grant": func() error {
			_, err := server.Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: mine.GetCacheId(), Grant: grant.GetId()}))
			return err
		},
		"disconnect a cache with a grant's token": func() error {
			_, err := server.Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: mine.GetCacheId(), Terms: grant.GetTerms(), Token: grant.GetToken()}))
			return err
		},
		"status": func() error {
			_, err := server.Status(ctx, connect.NewRequest(&serverv1.StatusRequest{}))
			return err
		},
		"status with a client's token": func() error {
			req := connect.NewRequest(&serverv1.StatusRequest{})
			req.Header().Set("Authorization", "Bearer "+grant.GetToken())
			_, err := server.Status(ctx, req)
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	if free := n.VM().Free; free != 7<<20 {
		t.Errorf("%d bytes free, want 7 MiB as before", free)
	}
	leases, err := m.led().grantsOf(t.Context(), n.VM())
	if err != nil || len(leases) != 1 {
		t.Errorf("the manager sees %v, %v", leases, err)
	}
	giveBack()

	// The description of a cache does not contain what is needed to use it.
	d, err := client.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, ca := range d.Msg.GetCaches() {
		if slices.ContainsFunc(ca.GetGrants(), func(s *managerv1.Grant) bool { return s.GetToken() != "" }) {
			t.Errorf("a token in %v", ca)
		}
	}
}
