package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/selfsigned"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

var testTokens = []access.Token{
	{Name: "app", Roles: []access.Role{access.RoleClient}, Secret: "app-token-0123456789"},
	{Name: "host", Roles: []access.Role{access.RoleServer}, Secret: "host-token-0123456789"},
	{Name: "admin", Roles: []access.Role{access.RoleOperator}, Secret: "admin-token-0123456789"},
	{Name: "late", Roles: []access.Role{access.RoleOperator}, Secret: "late-token-0123456789", Expires: time.Unix(1_000_000, 0)},
}

// dialAs returns a client with a token; an empty token is none.
func dialAs(t *testing.T, m *Manager, token string) access.Client {
	t.Helper()
	client, err := access.DialWith(m.URL(), access.Credentials{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A call needs a token of its role; the error says what is wrong with another one.
func TestTokens(t *testing.T) {
	a := newScripted(t, 64<<20)
	m, nobody := serve(t, Options{Allocator: a, Tokens: func() *access.TokenSet { return access.NewTokenSet(testTokens...) }})
	ctx := testContext(t)
	allocate := func(c access.Client) error {
		r, err := c.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1}))
		if err == nil {
			_, err = c.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: r.Msg.GetCacheId()}))
		}
		return err
	}
	describe := func(c access.Client) error {
		_, err := c.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
		return err
	}
	for _, tc := range []struct {
		name   string
		client access.Client
		call   func(access.Client) error
		want   *api.TokenError // nil: the call is admitted
	}{
		{"client allocates", dialAs(t, m, testTokens[0].Secret), allocate, nil},
		{"operator allocates", dialAs(t, m, testTokens[2].Secret), allocate, nil},
		{"operator describes", dialAs(t, m, testTokens[2].Secret), describe, nil},
		{"no token", nobody, allocate, &api.TokenError{Problem: api.TokenMissing}},
		{"unknown", dialAs(t, m, "app-token-0123456788"), allocate, &api.TokenError{Problem: api.TokenUnknown}},
		{"expired", dialAs(t, m, testTokens[3].Secret), allocate, &api.TokenError{Problem: api.TokenExpired, Name: "late", Expired: testTokens[3].Expires}},
		{"server allocates", dialAs(t, m, testTokens[1].Secret), allocate, &api.TokenError{Problem: api.TokenRole, Name: "host", Roles: []string{"operator", "client"}}},
		{"client describes all", dialAs(t, m, testTokens[0].Secret), describe, &api.TokenError{Problem: api.TokenRole, Name: "app", Roles: []string{"operator"}}},
	} {
		err := tc.call(tc.client)
		got, ok := errors.AsType[*api.TokenError](err)
		switch {
		case tc.want == nil && err != nil, tc.want != nil && !ok:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want == nil:
		case got.Error() != tc.want.Error() || got.Problem != tc.want.Problem || !slices.Equal(got.Roles, tc.want.Roles):
			t.Errorf("%s: %#v, want %#v", tc.name, got, tc.want)
		case tc.want.Problem == api.TokenRole && connect.CodeOf(err) != connect.CodePermissionDenied,
			tc.want.Problem != api.TokenRole && connect.CodeOf(err) != connect.CodeUnauthenticated:
			t.Errorf("%s: code %v", tc.name, connect.CodeOf(err))
		}
	}
	stream, err := nobody.Watch(ctx, connect.NewRequest(&managerv1.WatchRequest{CacheId: "any"}))
	if err != nil {
		t.Fatal(err)
	}
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("watch with no token: %v", stream.Err())
	}
	if err := stream.Close(); err != nil {
		t.Log(err)
	}
}

// A cache is the client's whose token has allocated it: calls with another client's token are refused
// and change nothing, also under another leader. The owner, with whatever secret, and operators may
// make them.
func TestCacheHasAnOwner(t *testing.T) {
	tokens := append(slices.Clip(testTokens), access.Token{Name: "other", Roles: []access.Role{access.RoleClient, access.RoleServer}, Secret: "other-token-0123456789"})
	s := newCrashStore()
	opts := Options{Transport: "tcp", store: s, Lease: time.Hour, Moved: true, Tokens: func() *access.TokenSet { return access.NewTokenSet(tokens...) }}
	m, _ := serve(t, opts)
	if err := m.led().state.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	request := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 2 << 20, RegionSize: 1 << 20}
	mine, err := dialAs(t, m, "app-token-0123456789").Allocate(ctx, connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	id := mine.Msg.GetCacheId()
	holder := uint64(0)
	calls := func(c access.Client) map[string]error {
		all := make(map[string]error)
		_, all["renew"] = c.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: id, Holder: holder}))
		_, all["describe"] = c.DescribeCache(ctx, connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: id}))
		_, all["reallocate"] = c.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{CacheId: id, Holder: holder, Change: nextChange(), Regions: 1}))
		_, all["settle"] = c.Settle(ctx, connect.NewRequest(&managerv1.SettleRequest{
			CacheId: id, Holder: holder, Change: nextChange(), Capacity: 2 << 20, Grants: []*managerv1.SettledGrant{{Id: "g1", Regions: 2}},
		}))
		_, all["attach"] = c.Attach(ctx, connect.NewRequest(&managerv1.AttachRequest{CacheId: id, RequestId: newRequestID(), Holder: holder}))
		watching, cancel := context.WithCancel(ctx)
		stream, err := c.Watch(watching, connect.NewRequest(&managerv1.WatchRequest{CacheId: id, AfterSequence: 1 << 62}))
		if err == nil {
			stream.Receive()
			err = stream.Err()
			_ = stream.Close() // its end is not what is tested
		}
		cancel()
		all["watch"] = err
		return all
	}
	refused := func(m *Manager) {
		t.Helper()
		before := fmt.Sprint(m.led().state.describe())
		other := dialAs(t, m, "other-token-0123456789")
		all := calls(other)
		_, all["deallocate"] = other.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id}))
		for name, err := range all {
			if got, ok := errors.AsType[*api.TokenError](err); !ok || got.Problem != api.TokenCache || got.Name != "other" || got.Cache != id || connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%s with another client's token: %v", name, err)
			}
		}
		if _, err := other.Allocate(ctx, connect.NewRequest(request)); connect.CodeOf(err) != connect.CodeAlreadyExists {
			t.Errorf("another client repeats the Allocate: %v", err)
		}
		if after := fmt.Sprint(m.led().state.describe()); after != before {
			t.Errorf("after refused calls: %s, before: %s", after, before)
		}
	}
	refused(m)
	m, _ = serve(t, opts)
	refused(m)
	tokens[0].Secret = "renewed-token-0123456789"
	for _, secret := range []string{"renewed-token-0123456789", "admin-token-0123456789"} {
		for name, err := range calls(dialAs(t, m, secret)) {
			if err != nil {
				t.Errorf("%s by %s: %v", name, secret, err)
			}
		}
		holder++
	}
	r, err := dialAs(t, m, "renewed-token-0123456789").Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id}))
	if err != nil || !r.Msg.GetExisted() {
		t.Errorf("the owner deallocates it: %v, %v", r, err)
	}
}

// writeCertificate makes a self-signed certificate for this machine.
func writeCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	c, err := selfsigned.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := c.Write(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// With TLS, the manager and its clients authenticate each other by certificates, and
// launched servers get the credentials that they need.
func TestTLS(t *testing.T) {
	t.Setenv(childEnv, "registers")
	cert, key := writeCertificate(t, t.TempDir())
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := access.ReadCertificates(cert)
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{os.Args[0]}, Memory: 16 << 20, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := serve(t, Options{
		Allocator: a, Tokens: func() *access.TokenSet { return access.NewTokenSet(testTokens...) },
		TLS:    &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
		Access: access.Credentials{CA: cert, Cert: cert, Key: key},
	})
	client, err := access.DialWith(m.URL(), access.Credentials{Token: testTokens[0].Secret, CA: cert, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	_, err = allocateBytes(t, client, 1<<20)
	for ctx := testContext(t); heldUp(err) && ctx.Err() == nil; {
		_, err = allocateBytes(t, client, 1<<20)
	}
	if err != nil {
		t.Error(err)
	}
	for name, shown := range map[string]access.Credentials{
		"no certificate": {Token: testTokens[0].Secret, CA: cert},
		"no CA":          {Token: testTokens[0].Secret, Cert: cert, Key: key},
	} {
		stranger, err := access.DialWith(m.URL(), shown)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := allocateBytes(t, stranger, 1<<20); err == nil {
			t.Errorf("%s: let in", name)
		}
	}
}

// A client reads renewed certificates from its files, without being dialled again.
func TestRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir)
	m, _ := serve(t, Options{Transport: "tcp", TLS: &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(cert, key)
			return &c, err
		},
	}})
	m.http.SetKeepAlivesEnabled(false) // each call uses a new connection
	ca, old := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "old.pem")
	write := func(file string, text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := func() []byte {
		t.Helper()
		text, err := os.ReadFile(cert)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	call := func(c access.Client) error {
		_, err := c.Describe(testContext(t), connect.NewRequest(&managerv1.DescribeRequest{}))
		return err
	}
	write(ca, now())
	write(old, now())
	client, err := access.DialWith(m.URL(), access.Credentials{CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := access.DialWith(m.URL(), access.Credentials{CA: old})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(call(client), call(stranger)); err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, dir)
	if err := call(client); err == nil {
		t.Error("a certificate that nobody has vouched for is taken")
	}
	write(ca, now())
	if err := call(client); err != nil {
		t.Errorf("after the renewal: %v", err)
	}
	if err := call(stranger); err == nil {
		t.Error("who knows the old certificate takes the new one")
	}
	write(ca, []byte("half of a certif"))
	if err := call(client); err != nil {
		t.Errorf("while the file is written: %v", err)
	}
}

// childEnv makes the test binary a cache server of a local allocator, or a manager.
const childEnv = "MANAGER_TEST_CHILD"

// heldUp reports whether a call failed in transit, as when a process was suspended.
func heldUp(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return err != nil
	}
	return false
}

// register takes the flags in the order in which Launch gives them.
func register(args []string) error {
	flags := make(map[string]string)
	for i := 0; i+1 < len(args); i += 2 {
		flags[args[i]] = args[i+1]
	}
	var memory uint64
	if _, err := fmt.Sscan(flags["--memory"], &memory); err != nil {
		return err
	}
	vm := node.VM{ID: flags["--vm-id"], Start: 1, ControlURL: "http://127.0.0.1:1", Transport: flags["--transport"], FabricAddr: "nowhere", Memory: memory, Free: memory}
	mgr, err := access.DialWith(flags["--manager"], access.FromEnv())
	if err != nil {
		return err
	}
	// Repeated as by a node: either side ends a handshake that takes too long on a busy
	// machine.
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for {
		_, err := mgr.Register(ctx, connect.NewRequest(&managerv1.RegisterRequest{Vm: vm.Proto(true)}))
		if err == nil {
			break
		}
		if !heldUp(err) || ctx.Err() != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
