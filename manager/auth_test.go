package manager

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
)

var testTokens = []Token{
	{Name: "app", Roles: []Role{RoleClient}, Secret: "app-token-0123456789"},
	{Name: "host", Roles: []Role{RoleServer}, Secret: "host-token-0123456789"},
	{Name: "admin", Roles: []Role{RoleOperator}, Secret: "admin-token-0123456789"},
	{Name: "late", Roles: []Role{RoleOperator}, Secret: "late-token-0123456789", Expires: time.Unix(1_000_000, 0)},
}

// dialAs returns a client with a token.
func dialAs(t *testing.T, m *Manager, token string) Client {
	t.Helper()
	client, err := DialWith(m.URL(), Access{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A token goes to another machine over TLS only, unless that is asked for.
func TestTokenIsNotOverheard(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:7070": true, "localhost:7070": true, "http://[::1]:7070": true, "http://127.0.0.1:7070/path": true,
		"https://10.0.0.1:7070": true, "https://manager": true,
		"10.0.0.1:7070": false, "http://10.0.0.1:7070": false, "http://manager:7070": false, "manager:7070": false,
		"http://127.0.0.1.example:7070": false, "http://127.0.0.1:80@10.0.0.1": false,
	} {
		_, err := DialWith(addr, Access{Token: "secret"})
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", addr, err)
		}
		if _, err := DialWith(addr, Access{Token: "secret", Insecure: true}); err != nil {
			t.Errorf("%s, insecure: %v", addr, err)
		}
		if _, err := DialWith(addr, Access{}); err != nil {
			t.Errorf("%s, no token: %v", addr, err)
		}
	}
}

// A call needs a token of its role, and says what is wrong with another.
func TestTokens(t *testing.T) {
	a := newScripted(t, 64<<20)
	m, nobody := serve(t, Options{Allocator: a, Tokens: func() []Token { return testTokens }})
	ctx := testContext(t)
	allocate := func(c Client) error {
		r, err := c.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{Capacity: 1}))
		if err == nil {
			_, err = c.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: r.Msg.GetCacheId()}))
		}
		return err
	}
	describe := func(c Client) error {
		_, err := c.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
		return err
	}
	for _, tc := range []struct {
		name   string
		client Client
		call   func(Client) error
		want   *TokenError // nil: it is let in
	}{
		{"client allocates", dialAs(t, m, testTokens[0].Secret), allocate, nil},
		{"operator allocates", dialAs(t, m, testTokens[2].Secret), allocate, nil},
		{"operator describes", dialAs(t, m, testTokens[2].Secret), describe, nil},
		{"no token", nobody, allocate, &TokenError{Problem: TokenMissing}},
		{"unknown", dialAs(t, m, "app-token-0123456788"), allocate, &TokenError{Problem: TokenUnknown}},
		{"expired", dialAs(t, m, testTokens[3].Secret), allocate, &TokenError{Problem: TokenExpired, Name: "late", Expired: testTokens[3].Expires}},
		{"server allocates", dialAs(t, m, testTokens[1].Secret), allocate, &TokenError{Problem: TokenRole, Name: "host", Roles: []Role{RoleOperator, RoleClient}}},
		{"client describes all", dialAs(t, m, testTokens[0].Secret), describe, &TokenError{Problem: TokenRole, Name: "app", Roles: []Role{RoleOperator}}},
	} {
		err := tc.call(tc.client)
		got, ok := errors.AsType[*TokenError](err)
		switch {
		case tc.want == nil && err != nil, tc.want != nil && !ok:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want == nil:
		case got.Error() != tc.want.Error() || got.Problem != tc.want.Problem || !slices.Equal(got.Roles, tc.want.Roles):
			t.Errorf("%s: %#v, want %#v", tc.name, got, tc.want)
		case tc.want.Problem == TokenRole && connect.CodeOf(err) != connect.CodePermissionDenied,
			tc.want.Problem != TokenRole && connect.CodeOf(err) != connect.CodeUnauthenticated:
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

// Each procedure is for somebody, and the table has no others.
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
		"":                                   "nobody could call",
		"app client app-token-0123456789":    "line 1: 3 fields",
		"app king never app-token-012345678": `role "king"`,
		"app client never short":             "has 5 bytes",
		"app client soon app-token-01234567": `expiry "soon"`,
		"a client never app-token-01234567\na server never app-token-01234568": "line 2: token \"a\" is there already",
		"a client never app-token-01234567\nb server never app-token-01234567": "is there already",
	} {
		if _, err := ParseTokens(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A file that changes changes who is let in, unless it cannot be read.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("app client never app-token-0123456789\n")
	f, err := OpenTokenFile(path, quiet())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_000_000, 0)
	look := func() string {
		now = now.Add(tokenFileEvery)
		var names []string
		for _, token := range f.at(now) {
			names = append(names, token.Name)
		}
		return strings.Join(names, " ")
	}
	if got := look(); got != "app" {
		t.Errorf("tokens of %s", got)
	}
	write("app client never app-token-0123456789\nadmin operator never admin-token-0123456789\n")
	if got := look(); got != "app admin" {
		t.Errorf("tokens of %s after a change", got)
	}
	write("app")
	if got := look(); got != "app admin" {
		t.Errorf("tokens of %s after a change that says nothing", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := look(); got != "app admin" {
		t.Errorf("tokens of %s without a file", got)
	}
}

// writeCertificate makes a certificate for this machine that signs itself.
func writeCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "manager"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// A manager over TLS is known by its certificate, and knows its callers by theirs;
// what it launches has what it needs for that.
func TestTLS(t *testing.T) {
	t.Setenv(childEnv, childRegisters)
	cert, key := writeCertificate(t, t.TempDir())
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := ReadCertificates(cert)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewLocalAllocator(LocalOptions{Command: []string{os.Args[0]}, Memory: 16 << 20, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := serve(t, Options{
		Allocator: a, Tokens: func() []Token { return testTokens },
		TLS:    &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
		Access: Access{CA: cert, Cert: cert, Key: key},
	})
	client, err := DialWith(m.URL(), Access{Token: testTokens[0].Secret, CA: cert, Cert: cert, Key: key})
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
	for name, access := range map[string]Access{
		"no certificate": {Token: testTokens[0].Secret, CA: cert},
		"no CA":          {Token: testTokens[0].Secret, Cert: cert, Key: key},
	} {
		stranger, err := DialWith(m.URL(), access)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := allocateBytes(t, stranger, 1<<20); err == nil {
			t.Errorf("%s: let in", name)
		}
	}
}

// A certificate is renewed under a program that goes on: what was dialled before knows
// the new one by its files.
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
	m.http.SetKeepAlivesEnabled(false) // each call is a connection
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
	call := func(c Client) error {
		_, err := c.Describe(testContext(t), connect.NewRequest(&managerv1.DescribeRequest{}))
		return err
	}
	write(ca, now())
	write(old, now())
	client, err := DialWith(m.URL(), Access{CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := DialWith(m.URL(), Access{CA: old})
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
