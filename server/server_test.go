package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

const regionSize = 64 << 10

// testSecret is the secret of newServer's servers.
const testSecret = "the secret of the tests' servers"

// newServer starts a server, and returns it with a client that signs calls as its manager
// would, where they have no credentials.
func newServer(t testing.TB, opts Options) (*Server, serverv1connect.CacheServerServiceClient) {
	t.Helper()
	s, url := serveOne(t, opts)
	return s, serverv1connect.NewCacheServerServiceClient(http.DefaultClient, url, connect.WithInterceptors(connect.UnaryInterceptorFunc(sign)))
}

// serveOne starts a server and its control API.
func serveOne(t testing.TB, opts Options) (_ *Server, url string) {
	t.Helper()
	opts.Logger, opts.ControlSecret = slog.New(slog.DiscardHandler), testSecret
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		web.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, web.URL
}

// testManager is the manager of newServer's clients.
var testManager = controltoken.Incarnation{Epoch: 5, ID: "tests", Bound: time.Hour}

func sign(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if m, ok := req.Any().(*serverv1.ConnectRequest); ok && m.Token == "" {
			m.Token = controltoken.Grant(testSecret, m.Terms)
		}
		authorize(req.Header(), testManager, testSecret)
		return next(ctx, req)
	}
}

// authorize adds a manager's credentials to a call.
func authorize(h http.Header, m controltoken.Incarnation, secret string) {
	h.Set("Authorization", "Bearer "+m.Token(secret))
	h.Set(controltoken.IncarnationHeader, m.String())
}

func connectCache(t testing.TB, client serverv1connect.CacheServerServiceClient, id string, regions, threads, batch uint32) *serverv1.ConnectResponse {
	t.Helper()
	answer, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms:         &managerv1.Terms{CacheId: id, Regions: regions, RegionSize: regionSize, Cores: 16},
		Configuration: &managerv1.Configuration{ClientThreads: 4, ServerThreads: threads, BatchSize: batch, QueueDepth: 4},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg
}

func openFabric(t testing.TB, name string) fabric.Provider {
	t.Helper()
	p, err := transport.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// dial connects like a client of the cache.
func dial(t testing.TB, p fabric.Provider, answer *serverv1.ConnectResponse, hello redywire.Hello) (fabric.QueuePair, error) {
	t.Helper()
	hello.Ticket = redywire.Ticket(answer.Ticket)
	return p.Dial(t.Context(), answer.FabricAddr, hello.Encode(), 16)
}

// await polls qp for one completion.
func await(t testing.TB, qp fabric.QueuePair) fabric.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(testrun.Bound))
	defer cancel()
	var done [1]fabric.Completion
	for qp.Poll(done[:]) == 0 {
		if err := qp.Err(); err != nil {
			return fabric.Completion{Err: err}
		}
		if err := qp.Wait(ctx); err != nil {
			return fabric.Completion{Err: err}
		}
	}
	return done[0]
}

func TestConnectIsChecked(t *testing.T) {
	_, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 2})
	connectCache(t, client, "taken", 1, 0, 1)
	for name, tc := range map[string]struct {
		req  *serverv1.ConnectRequest
		code connect.Code
	}{
		"no cache ID":           {&serverv1.ConnectRequest{Terms: &managerv1.Terms{Regions: 1, RegionSize: 1, Cores: 16}}, connect.CodeInvalidArgument},
		"no regions":            {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", RegionSize: 1, Cores: 16}}, connect.CodeInvalidArgument},
		"no region size":        {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", Regions: 1, Cores: 16}}, connect.CodeInvalidArgument},
		"product overflows":     {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", Regions: 1 << 16, RegionSize: 1 << 62, Cores: 16}}, connect.CodeInvalidArgument},
		"too many threads":      {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", Regions: 1, RegionSize: 1, Cores: 16}, Configuration: &managerv1.Configuration{ServerThreads: 3}}, connect.CodeInvalidArgument},
		"batch without threads": {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", Regions: 1, RegionSize: 1, Cores: 16}, Configuration: &managerv1.Configuration{BatchSize: 2}}, connect.CodeInvalidArgument},
		"huge batch":            {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", Regions: 1, RegionSize: 1, Cores: 16}, Configuration: &managerv1.Configuration{ServerThreads: 1, BatchSize: 1 << 20}}, connect.CodeInvalidArgument},
		"huge depth":            {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", Regions: 1, RegionSize: 1, Cores: 16}, Configuration: &managerv1.Configuration{QueueDepth: 1 << 20}}, connect.CodeInvalidArgument},
		"twice":                 {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "taken", Regions: 1, RegionSize: 1, Cores: 16}}, connect.CodeAlreadyExists},
		"too much memory":       {&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "a", Regions: 4, RegionSize: regionSize, Cores: 16}}, connect.CodeResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Connect(t.Context(), connect.NewRequest(tc.req))
			if connect.CodeOf(err) != tc.code {
				t.Fatalf("Connect: %v, want code %v", err, tc.code)
			}
			if tc.code != connect.CodeResourceExhausted {
				return
			}
			detail, err := detailOf(err)
			if err != nil || detail.FreeMemory != 3*regionSize {
				t.Fatalf("detail %v, %v; want %d bytes free", detail, err, 3*regionSize)
			}
		})
	}
	status, err := client.Status(t.Context(), connect.NewRequest(&serverv1.StatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if m := status.Msg; m.FreeMemory != 3*regionSize || len(m.Grants) != 1 || m.Grants[0].CacheId != "taken" {
		t.Fatalf("refused calls left a trace: %v", m)
	}
}

// An unknown field is named in the error, and nothing is lent.
func TestUnknownFieldsAreRefused(t *testing.T) {
	s, client := newServer(t, Options{Memory: regionSize})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8"} {
		body := strings.NewReader(`{"terms": {"cacheId": "c", "regions": 1, "regoinSize": "65536"}}`)
		resp, err := web.Client().Post(web.URL+serverv1connect.CacheServerServiceConnectProcedure, contentType, body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `unknown field \"regoinSize\"`) {
			t.Errorf("%s: %s, %s", contentType, resp.Status, text)
		}
	}
	status, err := client.Status(t.Context(), connect.NewRequest(&serverv1.StatusRequest{}))
	if err != nil || len(status.Msg.GetGrants()) != 0 {
		t.Errorf("%v, %v", status, err)
	}
}

func TestOneSided(t *testing.T) {
	s, client := newServer(t, Options{Memory: 2 * regionSize})
	answer := connectCache(t, client, "cache", 2, 0, 1)
	qp, err := dial(t, openFabric(t, answer.Transport), answer, redywire.Hello{Batch: 1, Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := qp.Import(t.Context(), fabric.Token(answer.RegionTokens[1]))
	if err != nil {
		t.Fatal(err)
	}
	in, out := []byte("one-sided"), make([]byte, 9)
	if err := qp.Write(in, remote, 100, 1); err != nil {
		t.Fatal(err)
	}
	if err := qp.Read(out, remote, 100, 2); err != nil {
		t.Fatal(err)
	}
	if err := qp.Submit(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if c := await(t, qp); c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	if string(out) != string(in) {
		t.Fatalf("read %q", out)
	}

	// After Disconnect the memory is not accessible and free again, once.
	req := &serverv1.DisconnectRequest{CacheId: "cache", Ticket: make([]byte, 16)}
	if _, err := client.Disconnect(t.Context(), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Fatalf("Disconnect with a wrong ticket: %v", err)
	}
	req.Ticket = answer.Ticket
	if _, err := client.Disconnect(t.Context(), connect.NewRequest(req)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Disconnect(t.Context(), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Fatalf("second Disconnect: %v", err)
	}
	if err := qp.Read(out, remote, 100, 3); err == nil {
		_ = qp.Submit()
		if c := await(t, qp); c.Err == nil {
			t.Fatal("memory answers after Disconnect")
		}
	}
	status, err := s.Status(context.Background(), connect.NewRequest(&serverv1.StatusRequest{}))
	if err != nil || status.Msg.FreeMemory != 2*regionSize {
		t.Fatalf("after Disconnect: %v, %v", status, err)
	}
}

func TestDialIsChecked(t *testing.T) {
	s, client := newServer(t, Options{Memory: 2 * regionSize, Cores: 1})
	answer := connectCache(t, client, "cache", 1, 0, 1)
	p := openFabric(t, answer.Transport)
	if _, err := dial(t, p, answer, redywire.Hello{Batch: 8, Depth: 1}); err == nil {
		t.Error("rings without server threads")
	}
	ringed := connectCache(t, client, "ringed", 1, 1, 8)
	for _, hello := range []redywire.Hello{{Batch: 9, Depth: 4}, {Batch: 8, Depth: 5}} {
		if _, err := dial(t, p, ringed, hello); err == nil {
			t.Errorf("rings larger than the lease's: %+v", hello)
		}
	}
	answer.Ticket = make([]byte, 16)
	if _, err := dial(t, p, answer, redywire.Hello{Batch: 1, Depth: 1}); err == nil {
		t.Error("admitted with a wrong ticket")
	}
	if _, err := p.Dial(t.Context(), answer.FabricAddr, []byte("who?"), 1); err == nil {
		t.Error("admitted without a hello")
	}
	if n := s.Metrics().Rejected; n != 5 {
		t.Errorf("%d rejected, want 5", n)
	}
}

// detailOf returns the detail of a refusal for lack of memory.
func detailOf(err error) (*serverv1.StatusResponse, error) {
	var typed *connect.Error
	if !errors.As(err, &typed) || len(typed.Details()) != 1 {
		return nil, err
	}
	value, err := typed.Details()[0].Value()
	if err != nil {
		return nil, err
	}
	return value.(*serverv1.StatusResponse), nil
}
