package access

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/testrun"
)

// A token is sent to another machine over TLS only, unless Insecure permits more.
func TestTokenIsNotOverheard(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:7070": true, "localhost:7070": true, "http://[::1]:7070": true, "http://127.0.0.1:7070/path": true,
		"https://10.0.0.1:7070": true, "https://manager": true,
		"10.0.0.1:7070": false, "http://10.0.0.1:7070": false, "http://manager:7070": false, "manager:7070": false,
		"http://127.0.0.1.example:7070": false, "http://127.0.0.1:80@10.0.0.1": false,
	} {
		_, err := DialWith(addr, Credentials{Token: "secret"})
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", addr, err)
		}
		if _, err := DialWith(addr, Credentials{Token: "secret", Insecure: true}); err != nil {
			t.Errorf("%s, insecure: %v", addr, err)
		}
		if _, err := DialWith(addr, Credentials{}); err != nil {
			t.Errorf("%s, no token: %v", addr, err)
		}
	}
}

// Each procedure has callers, and the table has no others.
func TestCallersComplete(t *testing.T) {
	service := managerv1.File_redykv_manager_v1_manager_proto.Services().ByName("ManagerService")
	name := func(m protoreflect.MethodDescriptor) string {
		return "/" + managerv1connect.ManagerServiceName + "/" + string(m.Name())
	}
	known := make(map[string]bool)
	for i := range service.Methods().Len() {
		known[name(service.Methods().Get(i))] = true
	}
	for procedure := range callers {
		if !known[procedure] {
			t.Errorf("%s is no procedure", procedure)
		}
	}
}

func TestParseTokens(t *testing.T) {
	got, err := ParseTokens("# who\n\napp client,server never app-token-0123456789\n  admin operator 2030-12-31T00:00:00Z admin-token-0123456789\n")
	if err != nil || len(got) != 2 || got[0].Name != "app" || !slices.Equal(got[0].Roles, []Role{RoleClient, RoleServer}) ||
		!got[0].Expires.IsZero() || got[1].Expires.Year() != 2030 || got[1].Secret != "admin-token-0123456789" {
		t.Errorf("tokens %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                      "no tokens: want a line",
		"app client app-token-0123456789":       "line 1: 3 fields",
		"app king never app-token-012345678":    `role "king"`,
		"app client never short":                "has 5 bytes",
		"m\xfcller client never m-token-012345": "want a name in UTF-8",
		"app client soon app-token-01234567":    `expiry "soon"`,
		"a client never app-token-01234567\na server never app-token-01234568": "line 2: token \"a\": its name or its secret is in the file already",
		"a client never app-token-01234567\nb server never app-token-01234567": "its name or its secret is in the file already",
	} {
		if _, err := ParseTokens(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// rest waits until no check of the file is under way.
func (f *TokenFile) rest() {
	for reading := true; reading; time.Sleep(100 * time.Microsecond) {
		f.mu.Lock()
		reading = f.reading
		f.mu.Unlock()
	}
}

// A change of the file takes effect, unless the file cannot be read.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("app client never app-token-0123456789\n")
	f, err := OpenTokenFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_000_000, 0)
	look := func() string {
		now = now.Add(tokenFileEvery)
		f.check(now)
		f.rest()
		return strings.Join(slices.Sorted(maps.Keys(f.at(now).names)), " ")
	}
	if got := look(); got != "app" {
		t.Errorf("tokens of %s", got)
	}
	write("app client never app-token-0123456789\nadmin operator never admin-token-0123456789\n")
	if got := look(); got != "admin app" {
		t.Errorf("tokens of %s after a change", got)
	}
	write("app")
	if got := look(); got != "admin app" {
		t.Errorf("tokens of %s after a change that says nothing", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := look(); got != "admin app" {
		t.Errorf("tokens of %s without a file", got)
	}
}

// During a check of the file, calls with known tokens go on, unless the last check is old.
func TestTokensDuringCheck(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	f := &TokenFile{}
	// during returns a Guard at a time during a check, which will find one token.
	during := func(at time.Time, before, found string) (*Guard, context.Context, func()) {
		sets := [2]*TokenSet{NewTokenSet(Token{Secret: before}), NewTokenSet(Token{Secret: found})}
		for _, s := range sets {
			s.file = f
		}
		settled, end := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
		f.reading, f.checked, f.settled, f.tokens = true, now, settled, sets[0]
		g := &Guard{Tokens: func() *TokenSet { return f.at(at) }}
		g.SetLaunchKey("key")
		return g, settled, func() {
			f.mu.Lock()
			f.tokens = sets[1]
			f.mu.Unlock()
			end()
		}
	}
	g, settled, end := during(now.Add(tokenFileEvery), "old", "new")
	for _, secret := range []string{"old", g.LaunchedToken("vm")} {
		if _, ok := g.find(secret); !ok || settled.Err() != nil {
			t.Errorf("%s: known %v, the check has ended: %v", secret, ok, settled.Err())
		}
	}
	go end()
	if _, ok := g.find("new"); !ok {
		t.Error("a new token does not wait for the check")
	}
	g, _, end = during(now.Add(tokenFileAge), "old", "new")
	go end()
	if _, ok := g.find("old"); ok {
		t.Error("a removed token is good after a pause without calls")
	}
}

// TestTokenNewline checks that a token from a file of a secret, which ends with a newline, is the token.
func TestTokenNewline(t *testing.T) {
	t.Setenv(TokenEnv, "secret\n")
	if got := FromEnv().Token; got != "secret" {
		t.Errorf("%q", got)
	}
}
