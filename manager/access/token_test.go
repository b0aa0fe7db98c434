package access

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/manager/api"
)

// TestTokenSet finds tokens by their secrets, and those of launched servers by the key.
func TestTokenSet(t *testing.T) {
	set := NewTokenSet(
		Token{Name: "app", Roles: []Role{RoleClient}, Secret: "app-token-0123456789"},
		Token{Name: "dot", Roles: []Role{RoleServer}, Secret: "dotted.token-0123456789", VM: "v"},
	)
	g := &Guard{Tokens: func() *TokenSet { return set }, Now: time.Now}
	g.SetLaunchKey("key")
	launched := g.LaunchedToken("launched-1")
	for secret, want := range map[string]string{
		"app-token-0123456789": "app", "dotted.token-0123456789": "dot", launched: "of launched VM launched-1",
		"app-token-012345678": "", launched + "x": "", "launched-2" + launched[len("launched-1"):]: "", ".": "",
	} {
		if got, ok := g.find(secret); got.Name != want || ok != (want != "") {
			t.Errorf("%s: token %q, %v, want %q", secret, got.Name, ok, want)
		}
	}
	if g.SetLaunchKey(""); g.LaunchedToken("launched-1") == launched {
		t.Error("the token of a launched server does not depend on the key")
	}
	if _, ok := g.find(g.LaunchedToken("launched-1")); ok {
		t.Error("a token of a launched server is good without a key")
	}
	if !set.named("dot") || set.named("v") || !set.bound("v") || set.bound("") {
		t.Errorf("names %v, VMs %v", set.names, set.vms)
	}
	none := &Guard{Tokens: func() *TokenSet { return NewTokenSet() }, Now: time.Now}
	var unknown *api.TokenError
	if _, err := none.admit(managerv1connect.ManagerServiceAllocateProcedure, "Bearer x"); !errors.As(err, &unknown) || unknown.Problem != api.TokenUnknown {
		t.Errorf("an empty set: %v", err)
	}
}

// BenchmarkAdmit measures the check of one call with 10,000 tokens: of a token of the set, and
// of a launched server's.
func BenchmarkAdmit(b *testing.B) {
	var tokens []Token
	for i := range 10_000 {
		tokens = append(tokens, Token{
			Name: fmt.Sprint("t", i), Roles: []Role{RoleServer}, Secret: fmt.Sprintf("token-of-server-%010d", i), VM: fmt.Sprint("v", i),
		})
	}
	set := NewTokenSet(tokens...)
	g := &Guard{Tokens: func() *TokenSet { return set }, Now: time.Now}
	g.SetLaunchKey("key")
	for name, secret := range map[string]string{"set": tokens[5000].Secret, "launched": g.LaunchedToken("launched-1")} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := g.admit(managerv1connect.ManagerServiceHeartbeatProcedure, "Bearer "+secret); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
