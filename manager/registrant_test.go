package manager

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
)

// A token may act for the VMs that it registered, the VM that it names, or the VM that was
// launched with it, and for no other.
func TestServersSpeakForThemselves(t *testing.T) {
	text := "one server never one-token-0123456789\ntwo server never two-token-0123456789\n" +
		"bound server:c never bound-token-0123456789\nadmin operator never admin-token-0123456789\n"
	tokens, err := access.ParseTokens(text)
	if err != nil {
		t.Fatal(err)
	}
	a := newScripted(t, 64<<20)
	m, _ := serve(t, Options{Allocator: a, Tokens: func() *access.TokenSet { return access.NewTokenSet(tokens...) }})
	ctx := testContext(t)
	register := func(secret, id string) error {
		vm := testVM(id, 1<<20, 0, "http://127.0.0.1:1")
		_, err := dialAs(t, m, secret).Register(ctx, connect.NewRequest(&managerv1.RegisterRequest{Vm: vm.Proto(true)}))
		return err
	}
	beat := func(secret, id string) error {
		_, err := dialAs(t, m, secret).Heartbeat(ctx, connect.NewRequest(&managerv1.HeartbeatRequest{VmId: id, Start: starts(m, id)}))
		return err
	}
	reclaim := func(secret, id string) error {
		_, err := dialAs(t, m, secret).Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: id, NoticeMs: 1 << 30}))
		return err
	}
	admin := dialAs(t, m, "admin-token-0123456789")
	ca, err := allocateBytes(t, admin, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	launched := ca.GetGrants()[0].GetVm().GetId()
	const one, two, bound = "one-token-0123456789", "two-token-0123456789", "bound-token-0123456789"
	own := m.guard.LaunchedToken(launched)
	for _, tc := range []struct {
		name   string
		call   func(secret, id string) error
		secret string
		id     string
		ok     bool
	}{
		{"one registers a", register, one, "a", true},
		{"two registers a", register, two, "a", false},
		{"two beats for a", beat, two, "a", false},
		{"two reclaims a", reclaim, two, "a", false},
		{"one beats for a", beat, one, "a", true},
		{"two registers b", register, two, "b", true},
		{"bound registers b", register, bound, "b", false},
		{"one registers c", register, one, "c", false},
		{"bound registers d", register, bound, "d", false},
		{"bound registers c", register, bound, "c", true},
		{"bound reclaims c", reclaim, bound, "c", true},
		{"one reclaims a launched VM", reclaim, one, launched, false},
		{"one registers a launched VM", register, one, launched, false},
		{"a launched VM reclaims a", reclaim, own, "a", false},
		{"a launched VM registers e", register, own, "e", false},
		{"a launched VM beats for itself", beat, own, launched, true},
		{"a launched VM reclaims itself", reclaim, own, launched, true},
		{"an operator reclaims a", reclaim, "admin-token-0123456789", "a", true},
	} {
		err := tc.call(tc.secret, tc.id)
		if tc.ok {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		e, is := errors.AsType[*api.TokenError](err)
		if !is || e.Problem != api.TokenVM || e.VM != tc.id || connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	// A launched server cannot forge another VM's token from its own.
	forged := "vm-OTHER" + strings.TrimPrefix(own, launched)
	if e, is := errors.AsType[*api.TokenError](beat(forged, "vm-OTHER")); !is || e.Problem != api.TokenUnknown {
		t.Errorf("a forged token: %v", e)
	}
	// A token that was removed does not keep its VM from another token.
	tokens = tokens[1:]
	if err := register(two, "a"); err != nil {
		t.Errorf("the successor registers a: %v", err)
	}
}

// A token's registrations survive a restart of the manager.
func TestSpeakersAreKept(t *testing.T) {
	tokens := []access.Token{{Name: "one", Roles: []access.Role{access.RoleServer}, Secret: "one-token-0123456789"}, {Name: "two", Roles: []access.Role{access.RoleServer}, Secret: "two-token-0123456789"}}
	s := newCrashStore()
	m, _ := serve(t, Options{Transport: "tcp", store: s, Tokens: func() *access.TokenSet { return access.NewTokenSet(tokens...) }})
	vm := testVM("a", 1<<20, 0, "http://127.0.0.1:1")
	_, err := dialAs(t, m, tokens[0].Secret).Register(testContext(t), connect.NewRequest(&managerv1.RegisterRequest{Vm: vm.Proto(true)}))
	if err != nil {
		t.Fatal(err)
	}
	again, err := reload(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if launched, owner := again.led().state.registrantOf("a"); launched || owner != "one" {
		t.Errorf("VM a was registered by %q, launched %v", owner, launched)
	}
}

// A stream ends when its token becomes invalid, with the reason.
func TestWatchEndsWithItsToken(t *testing.T) {
	c := &handClock{now: time.Unix(1_000_000, 0)}
	app := access.Token{Name: "app", Roles: []access.Role{access.RoleClient}, Secret: "app-token-0123456789", Expires: c.read().Add(time.Hour)}
	m, _ := serve(t, Options{Allocator: newScripted(t, 64<<20), Tokens: func() *access.TokenSet { return access.NewTokenSet(app) }, now: c.read})
	client := dialAs(t, m, app.Secret)
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: ca.GetCacheId()}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	if _, err := m.led().reclaim(ca.GetGrants()[0].GetVm().GetId(), 0, c.read().Add(2*time.Hour), "soon"); err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	c.advance(time.Hour)
	if stream.Receive() {
		t.Fatalf("after its token has expired it brings %v", stream.Msg())
	}
	e, is := errors.AsType[*api.TokenError](stream.Err())
	if !is || e.Problem != api.TokenExpired || e.Name != "app" || connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("it ended with %v", stream.Err())
	}
}
