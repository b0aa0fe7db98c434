package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/redytier"
)

func TestMain(m *testing.M) {
	testrun.Main(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// service is a proxy that serves at a loopback address, with its manager and VMs in this process.
type service struct {
	t       testing.TB
	proxy   *Proxy
	mgr     *manager.Embedded
	vms     *allocator.InProcess
	addr    string
	http    *http.Client
	token   string
	release func() // of lost memory that waits for the application
}

// serve starts a service, which ends with the test.
func serve(t testing.TB, opts Options) *service {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	opts.Logger, opts.Base.Logger = quiet, quiet
	vms, err := allocator.NewInProcess(allocator.InProcessOptions{Memory: 1 << 30, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{Allocator: vms, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(mgr, opts)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(ln) }()
	s := &service{t: t, proxy: p, mgr: mgr, vms: vms, addr: ln.Addr().String(), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		if err := errors.Join(p.Close(context.Background()), <-served); err != nil {
			t.Errorf("closing the proxy: %v", err)
		}
		if n := len(s.atManager()); n > 0 {
			t.Errorf("the manager still has %d caches", n)
		}
		if err := mgr.Close(); err != nil {
			t.Errorf("closing the manager: %v", err)
		}
	})
	return s
}

// atManager returns the caches that the manager has.
func (s *service) atManager() []*managerv1.Cache {
	r, err := s.mgr.Describe(context.Background(), connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	return r.Msg.GetCaches()
}

// answer is what a request was answered with.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // of the body
}

// code returns the code of an error.
func (a answer) code() Code {
	var e errorAnswer
	_ = json.Unmarshal(a.body, &e) // another answer has no code
	return e.Error.Code
}

// do sends a request with headers in pairs of name and value.
func (s *service) do(method, path string, body io.Reader, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequest(method, "http://"+s.addr+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.body, a.err = io.ReadAll(resp.Body)
	return a
}

// create creates a cache and returns its path.
func (s *service) create(request string) string {
	s.t.Helper()
	a := s.do("POST", "/v1/caches", strings.NewReader(request), "Content-Type", "application/json")
	if a.status != http.StatusCreated {
		s.t.Fatalf("create: %d %s %v", a.status, a.body, a.err)
	}
	return a.header.Get("Location")
}

func (s *service) write(path string, from int64, b []byte) answer {
	return s.do("PUT", path+"/bytes", bytes.NewReader(b), "Content-Range", fmt.Sprintf("bytes %d-%d/*", from, from+int64(len(b))-1))
}

func (s *service) read(path string, at span) answer {
	return s.do("GET", path+"/bytes", nil, "Range", fmt.Sprintf("bytes=%d-%d", at.from, at.to-1))
}

// idle waits until no request has a buffer.
func (s *service) idle() {
	s.t.Helper()
	for end := time.Now().Add(testrun.Patience(time.Minute)); s.proxy.Metrics().BuffersUsed > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%d buffers are in use", s.proxy.Metrics().BuffersUsed)
		}
	}
}

// A cache is created, described, written, read and deleted, with the answers of the package's
// documentation.
func TestCache(t *testing.T) {
	s := serve(t, Options{})
	const capacity = 3 << 20
	path := s.create(`{"capacity": 3145728, "region_size": 1048576, "duration_seconds": 60, "transport": "mem",
		"configuration": {"client_threads": 2, "server_threads": 0, "batch_size": 1, "queue_depth": 8}}`)
	var d Description
	if a := s.do("GET", path, nil); json.Unmarshal(a.body, &d) != nil || "/v1/caches/"+d.ID != path || d.ManagerID != d.ID ||
		d.Capacity != capacity || d.RegionSize != 1<<20 || d.Configuration != (Configuration{2, 0, 1, 8}) || d.Transport != "mem" ||
		d.Regions["stable"] != 3 || d.Error != "" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if at := s.atManager(); len(at) != 1 || at[0].GetId() != d.ID || at[0].GetDurationSeconds() != 60 {
		t.Errorf("at the manager: %v", at)
	}
	if a := s.do("GET", "/v1/caches", nil); !bytes.Contains(a.body, []byte(d.ID)) {
		t.Errorf("%s", a.body)
	}
	var regions struct{ Regions []Region }
	if a := s.do("GET", path+"/regions?from=1048576", nil); json.Unmarshal(a.body, &regions) != nil || len(regions.Regions) != 2 ||
		regions.Regions[0].From != 1<<20 || regions.Regions[0].State != "stable" || regions.Regions[0].VM == "" {
		t.Errorf("%s", a.body)
	}
	if a := s.write(path, 1<<20-3, []byte("hello")); a.status != http.StatusNoContent || a.header.Get(lossesHeader) != "0" {
		t.Errorf("write: %d %s", a.status, a.body)
	}
	a := s.read(path, span{1<<20 - 4, 1<<20 + 3})
	if string(a.body) != "\x00hello\x00" || a.status != http.StatusPartialContent || a.header.Get(lossesHeader) != "0" ||
		a.header.Get("Content-Range") != "bytes 1048572-1048578/3145728" || a.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("read: %d %q %v", a.status, a.body, a.header)
	}
	all := bytes.Repeat([]byte("redykv's"), capacity/8)
	if a := s.do("PUT", path+"/bytes", bytes.NewReader(all)); a.status != http.StatusNoContent {
		t.Errorf("write all: %d %s", a.status, a.body)
	}
	if a := s.do("GET", path+"/bytes", nil); a.status != http.StatusOK || !bytes.Equal(a.body, all) {
		t.Errorf("read all: %d and %d bytes", a.status, len(a.body))
	}
	reads := s.proxy.Metrics().PiecesRead
	if a := s.do("HEAD", path+"/bytes", nil); a.status != http.StatusOK || a.header.Get("Content-Length") != strconv.Itoa(capacity) || s.proxy.Metrics().PiecesRead != reads {
		t.Errorf("head: %d %v", a.status, a.header)
	}
	if m := s.proxy.Metrics(); m.Caches != 1 || m.Capacity != capacity || m.BytesRead != capacity+7 || m.BytesWritten != capacity+5 {
		t.Errorf("%+v", m)
	}
	if a := s.do("DELETE", path, nil); a.status != http.StatusNoContent || len(s.atManager()) != 0 {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := s.do(method, path, nil); a.status != http.StatusNotFound || a.code() != CodeNotFound {
			t.Errorf("%s of a deleted cache: %d %s", method, a.status, a.body)
		}
	}
}

// The list of regions continues where an answer ends.
func TestManyRegions(t *testing.T) {
	s := serve(t, Options{})
	path := s.create(`{"capacity": 9216000, "region_size": 4096}`) // 2250
	from, answers := int64(0), 0
	for ; from < 9216000; answers++ {
		var a struct {
			Regions []Region
			Next    *int64
		}
		if err := json.Unmarshal(s.do("GET", path+"/regions?from="+strconv.FormatInt(from, 10), nil).body, &a); err != nil {
			t.Fatal(err)
		}
		for _, r := range a.Regions {
			if r.From != from || r.To != from+4096 {
				t.Fatalf("%+v at %d", r, from)
			}
			from = r.To
		}
		if (a.Next == nil) != (from == 9216000) || a.Next != nil && *a.Next != from {
			t.Fatalf("next %v at %d", a.Next, from)
		}
	}
	if answers != 3 {
		t.Errorf("%d answers", answers)
	}
}

// Bad requests have an error of their own, and change nothing.
func TestErrors(t *testing.T) {
	s := serve(t, Options{MaxCaches: 1})
	path := s.create(`{"capacity": 1048576}`)
	body := strings.Repeat("x", 100)
	for _, x := range []struct {
		method, path, body string
		headers            []string
		status             int
		code               Code
	}{
		{"GET", "/", "", nil, 404, CodeNotFound},
		{"GET", "/v1/caches/", "", nil, 404, CodeNotFound},
		{"GET", "/v1/caches/none/bytes", "", nil, 404, CodeNotFound},
		{"PUT", "/v1/caches/none/bytes", body, nil, 404, CodeNotFound},
		{"GET", "/v1/caches/none/regions", "", nil, 404, CodeNotFound},
		{"PATCH", path + "/bytes", body, nil, 405, CodeMethod},
		{"DELETE", "/v1/caches", "", nil, 405, CodeMethod},
		{"POST", "/v1/caches", `{"capacity": 1048576}`, []string{"Content-Type", "text/plain"}, 415, CodeMediaType},
		{"POST", "/v1/caches", `{"capacity": 1048576}`, nil, 415, CodeMediaType},
		{"POST", "/v1/caches", `{"capacity": 1048576}`, []string{"Content-Type", "application/json"}, 429, CodeManyCaches},
		{"POST", "/v1/caches", `{"capacity": 1048576, "size": 3}`, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", `{"capacity": 1.5}`, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", `{"capacity": 1}`, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", `{}{}`, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", ``, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", `{"capacity": 1048576, "slo": {"operations": "all"}}`, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", `{"capacity": 1048576, "duration_seconds": 9223372036854775807}`, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", `{"capacity": 1048576, "slo": {"max_latency_us": 1e300}}`, []string{"Content-Type", "application/json"}, 400, CodeInvalid},
		{"POST", "/v1/caches", `{"transport": "` + strings.Repeat("x", maxRequest) + `"}`, []string{"Content-Type", "application/json"}, 413, CodeTooLarge},
		{"GET", path + "/regions?from=x", "", nil, 400, CodeInvalid},
		{"GET", path + "/bytes", "", []string{"Range", "bytes=1048576-"}, 416, CodeOutOfRange},
		{"GET", path + "/bytes", "", []string{"Range", "bytes=0-1,3-4"}, 400, CodeInvalid},
		{"PUT", path + "/bytes", body, nil, 400, CodeInvalid},
		{"PUT", path + "/bytes", body, []string{"Content-Range", "bytes 0-98/*"}, 400, CodeInvalid},
		{"PUT", path + "/bytes", body, []string{"Content-Range", "bytes 0-99/5"}, 400, CodeInvalid},
		{"PUT", path + "/bytes", body, []string{"Content-Range", "bytes */1048576"}, 400, CodeInvalid},
		{"PUT", path + "/bytes", body, []string{"Content-Range", "items 0-99/*"}, 400, CodeInvalid},
		{"PUT", path + "/bytes", body, []string{"Content-Range", "bytes 1048500-1048599/*"}, 416, CodeOutOfRange},
	} {
		a := s.do(x.method, x.path, strings.NewReader(x.body), x.headers...)
		if a.status != x.status || a.code() != x.code {
			t.Errorf("%s %s %v: %d %s, want %d %s", x.method, x.path, x.headers, a.status, a.body, x.status, x.code)
		}
		if x.status == 416 && a.header.Get("Content-Range") != "bytes */1048576" {
			t.Errorf("%s %v: Content-Range %q", x.path, x.headers, a.header.Get("Content-Range"))
		}
	}
	if a := s.do("GET", path+"/bytes", nil); len(a.body) != 1<<20 || bytes.Trim(a.body, "\x00") != nil && len(bytes.Trim(a.body, "\x00")) > 0 {
		t.Error("the cache has changed")
	}
	if n := len(s.atManager()); n != 1 {
		t.Errorf("%d caches", n)
	}
}

// What the manager refuses has the error of a proxy.
func TestRefusals(t *testing.T) {
	s := serve(t, Options{})
	for request, want := range map[string]struct {
		status int
		code   Code
	}{
		`{"capacity": 2147483648}`: {503, CodeNoMemory},
		`{"capacity": 1048576, "slo": {"max_latency_us": 0.001, "record_size": 8}}`: {422, CodeSLO},
		`{"capacity": 1048576, "slo": {"max_latency_us": 1e-6, "record_size": 8}}`:  {400, CodeInvalid},
		`{"capacity": 1048576, "slo": {"max_latency_us": 10}}`:                      {400, CodeInvalid},
		`{"capacity": 1048576, "transport": "pigeon"}`:                              {400, CodeInvalid},
	} {
		a := s.do("POST", "/v1/caches", strings.NewReader(request), "Content-Type", "application/json")
		if a.status != want.status || a.code() != want.code || want.status == 503 && a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", request, a.status, a.body)
		}
	}
	if n := len(s.proxy.list()) + len(s.atManager()) + s.proxy.claims; n != 0 {
		t.Errorf("%d caches", n)
	}
}

// With tokens, callers need one with the role client.
func TestTokens(t *testing.T) {
	set := access.NewTokenSet(
		access.Token{Name: "app", Roles: []access.Role{access.RoleClient}, Secret: "app-token-0123456789"},
		access.Token{Name: "host", Roles: []access.Role{access.RoleServer}, Secret: "host-token-0123456789"},
		access.Token{Name: "old", Roles: []access.Role{access.RoleClient}, Secret: "old-token-0123456789", Expires: time.Unix(1, 0)},
	)
	s := serve(t, Options{Tokens: func() *access.TokenSet { return set }})
	for token, want := range map[string]Code{"": CodeUnauthenticated, "wrong": CodeUnauthenticated, "old-token-0123456789": CodeUnauthenticated, "host-token-0123456789": CodeForbidden} {
		s.token = token
		a := s.do("GET", "/v1/caches", nil)
		if a.code() != want || want == CodeUnauthenticated && a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("token %q: %d %s", token, a.status, a.body)
		}
	}
	if a := s.do("GET", "/healthz", nil); a.status != http.StatusOK {
		t.Errorf("healthz: %d", a.status)
	}
	s.token = "app-token-0123456789"
	path := s.create(`{"capacity": 1048576}`)
	if a := s.do("DELETE", path, nil); a.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
}

// Options out of range are refused.
func TestOptions(t *testing.T) {
	for _, o := range []Options{{Memory: MinMemory - 1}, {Memory: 1 << 62}, {MaxCaches: -1}, {Timeout: -1}} {
		if _, err := New(nil, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

var _ redytier.Manager = (*manager.Embedded)(nil)
