package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/redywire"
)

// credentials are what a caller presents; each call uses some of them.
type credentials struct {
	terms  *managerv1.Terms // the terms that the caller claims
	token  string
	ticket []byte
	bearer string
	run    string // of a manager
}

func managedBy(m controltoken.Incarnation, secret string, terms *managerv1.Terms) credentials {
	return credentials{terms: terms, bearer: "Bearer " + m.Token(secret), run: m.String()}
}

// calls are all calls of the control API, with arguments that would change or reveal something
// if the call were accepted.
func calls(ctx context.Context, client serverv1connect.CacheServerServiceClient, source *serverv1.ConnectResponse) map[string]func(credentials) error {
	header := func(req connect.AnyRequest, c credentials) {
		req.Header().Set("Authorization", c.bearer)
		req.Header().Set(controltoken.IncarnationHeader, c.run)
	}
	return map[string]func(credentials) error{
		"Connect": func(c credentials) error {
			req := connect.NewRequest(&serverv1.ConnectRequest{
				Terms: c.terms, Token: c.token, Configuration: configuration(max(c.terms.GetCores(), 1), 4),
			})
			header(req, c)
			_, err := client.Connect(ctx, req)
			return err
		},
		"Disconnect": func(c credentials) error {
			req := connect.NewRequest(&serverv1.DisconnectRequest{
				CacheId: c.terms.GetCacheId(), Grant: c.terms.GetGrant(), Ticket: c.ticket, Terms: c.terms, Token: c.token,
			})
			header(req, c)
			_, err := client.Disconnect(ctx, req)
			return err
		},
		"Release": func(c credentials) error {
			req := connect.NewRequest(&serverv1.ReleaseRequest{CacheId: c.terms.GetCacheId(), Grant: c.terms.GetGrant(), Ticket: c.ticket})
			header(req, c)
			_, err := client.Release(ctx, req)
			return err
		},
		"Configure": func(c credentials) error {
			req := connect.NewRequest(&serverv1.ConfigureRequest{
				CacheId: c.terms.GetCacheId(), Grant: c.terms.GetGrant(), Ticket: c.ticket, Configuration: configuration(2, 4), Change: 1,
			})
			header(req, c)
			_, err := client.Configure(ctx, req)
			return err
		},
		"Pull": func(c credentials) error {
			req := connect.NewRequest(&serverv1.PullRequest{
				CacheId: c.terms.GetCacheId(), Grant: c.terms.GetGrant(), Ticket: c.ticket, FabricAddr: source.FabricAddr, SourceTicket: readingOf(source.Ticket),
				Regions: []*serverv1.PullRegion{{SourceToken: source.RegionTokens[0], Bytes: regionSize}},
			})
			header(req, c)
			stream, err := client.Pull(ctx, req)
			if err != nil {
				return err
			}
			for stream.Receive() {
			}
			defer func() { _ = stream.Close() }()
			return stream.Err()
		},
		"Status": func(c credentials) error {
			req := connect.NewRequest(&serverv1.StatusRequest{CacheId: c.terms.GetCacheId(), Grant: c.terms.GetGrant(), Ticket: c.ticket})
			header(req, c)
			_, err := client.Status(ctx, req)
			return err
		},
	}
}

// termsOf are the terms of a grant of two regions and two server threads.
func termsOf(cache, grant string) *managerv1.Terms {
	return &managerv1.Terms{CacheId: cache, Grant: grant, VmId: "vm", Regions: 2, RegionSize: regionSize, Cores: 2, Epoch: 5, KeepMs: time.Hour.Milliseconds()}
}

func signed(terms *managerv1.Terms) string { return controltoken.Grant(testSecret, terms) }

// connectAs connects under terms with one server thread.
func connectAs(t testing.TB, client serverv1connect.CacheServerServiceClient, terms *managerv1.Terms) *serverv1.ConnectResponse {
	t.Helper()
	r, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: terms, Token: signed(terms), Configuration: configuration(1, 4),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

// stateOf is what no refused call changes.
func stateOf(s *Server) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.status(), s.cores, len(s.tickets))
}

// Which call accepts which credentials; 0 stands for success. A call that is refused changes
// nothing.
func TestCredentials(t *testing.T) {
	const u, d, f, n = connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeFailedPrecondition, connect.CodeNotFound
	names := []string{
		"nothing", "another's ticket", "ticket", "token", "another's token", "token of another key", "token of more", "taken back",
		"manager", "older manager", "newer manager", "manager of another key", "ticket for reading",
	}
	for call, codes := range map[string][]connect.Code{
		//             of clients                of managers
		"Connect":    {u, u, u, 0, u, u, u, n, u, u, u, u, u},
		"Disconnect": {u, d, 0, 0, u, u, u, n, 0, f, f, u, d},
		"Release":    {d, d, 0, d, d, d, d, n, d, d, d, d, d},
		"Configure":  {d, d, 0, d, d, d, d, n, d, d, d, d, d},
		"Pull":       {d, d, 0, d, d, d, d, n, d, d, d, d, d},
		"Status":     {u, d, 0, u, u, u, u, n, 0, f, f, u, d},
	} {
		for i, want := range codes {
			t.Run(call+"/"+names[i], func(t *testing.T) {
				s, url := serveOne(t, Options{Memory: 16 * regionSize, Cores: 8, VM: "vm"})
				client := serverv1connect.NewCacheServerServiceClient(http.DefaultClient, url)
				if err := s.Obey(testManager); err != nil {
					t.Fatal(err)
				}
				source := connectAs(t, client, termsOf("source", "g1"))
				ended := termsOf("ended", "g1")
				old := connectAs(t, client, ended)
				if err := calls(t.Context(), client, nil)["Disconnect"](credentials{terms: ended, ticket: old.Ticket}); err != nil {
					t.Fatal(err)
				}
				terms := termsOf("cache", "g1")
				held := new(serverv1.ConnectResponse)
				if call != "Connect" {
					held = connectAs(t, client, terms)
				}
				smaller, another := proto.CloneOf(terms), controltoken.NewSecret()
				smaller.Regions--
				older, newer := testManager, testManager
				older.Epoch--
				newer.Epoch++
				before := stateOf(s)
				err := calls(t.Context(), client, source)[call]([]credentials{
					{terms: terms},
					{terms: terms, ticket: source.Ticket},
					{terms: terms, ticket: held.Ticket},
					{terms: terms, token: signed(terms)},
					{terms: terms, token: signed(termsOf("source", "g1"))},
					{terms: terms, token: controltoken.Grant(another, terms)},
					{terms: smaller, token: signed(terms)},
					{terms: ended, token: signed(ended), ticket: old.Ticket},
					managedBy(testManager, testSecret, terms),
					managedBy(older, testSecret, terms),
					managedBy(newer, testSecret, terms),
					managedBy(testManager, another, terms),
					{terms: terms, ticket: readingOf(held.Ticket)},
				}[i])
				if err != nil && connect.CodeOf(err) != want || err == nil && want != 0 {
					t.Errorf("%v, want code %v", err, want)
				}
				if after := stateOf(s); err != nil && after != before {
					t.Errorf("%s, was %s", after, before)
				}
			})
		}
	}
	// A newer manager is obeyed as soon as it answers the server; an older one never again.
	s, url := serveOne(t, Options{Memory: 16 * regionSize})
	status := calls(t.Context(), serverv1connect.NewCacheServerServiceClient(http.DefaultClient, url), nil)["Status"]
	newer := testManager
	newer.Epoch++
	newer.Bound = 0
	for _, step := range []struct {
		answers bool
		who     controltoken.Incarnation
		want    connect.Code
	}{{true, testManager, 0}, {false, newer, f}, {true, newer, 0}, {false, newer, 0}, {false, testManager, f}, {true, testManager, n}, {false, testManager, f}} {
		var err error
		if step.answers {
			if err = s.Obey(step.who); err != nil {
				err = connect.NewError(n, err)
			}
		} else {
			err = status(managedBy(step.who, testSecret, nil))
		}
		if err != nil && connect.CodeOf(err) != step.want || err == nil && step.want != 0 {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

// No call changes or reveals anything without the required credentials. Tested are missing,
// foreign and expired ones, with and without TLS.
func TestStrangers(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			s, _ := newServer(t, Options{Memory: 16 * regionSize, Cores: 8, VM: "vm"})
			web := httptest.NewUnstartedServer(s.Handler())
			if secure {
				web.StartTLS()
			} else {
				web.Start()
			}
			t.Cleanup(web.Close)
			strangers(t, s, serverv1connect.NewCacheServerServiceClient(web.Client(), web.URL))
		})
	}
}

func strangers(t *testing.T, s *Server, client serverv1connect.CacheServerServiceClient) {
	ctx := t.Context()
	mine, yours, ended := termsOf("mine", "g1"), termsOf("yours", "g1"), termsOf("mine", "g0")
	held, foreign, old := connectAs(t, client, mine), connectAs(t, client, yours), connectAs(t, client, ended)
	if _, err := client.Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "mine", Grant: "g0", Ticket: old.Ticket})); err != nil {
		t.Fatal(err)
	}
	if err := s.Obey(testManager); err != nil {
		t.Fatal(err)
	}
	before := stateOf(s)

	all := calls(ctx, client, foreign)
	methods := serverv1.File_redykv_server_v1_server_proto.Services().ByName("CacheServerService").Methods()
	for i := range methods.Len() {
		if name := string(methods.Get(i).Name()); all[name] == nil {
			t.Errorf("%s is not tried", name)
		}
	}
	next := termsOf("mine", "g2")
	but := func(change func(*managerv1.Terms)) credentials { // the token of next with other terms
		terms := proto.CloneOf(next)
		change(terms)
		return credentials{terms: terms, token: signed(next)}
	}
	bearer := func(token string) string { return "Bearer " + token }
	is := testManager
	for who, c := range map[string]credentials{
		"nobody":                        {},
		"nobody, of a grant":            {terms: mine},
		"nobody, of all of a cache":     {terms: &managerv1.Terms{CacheId: "mine"}},
		"nobody, of a grant to come":    {terms: next},
		"another client":                {terms: mine, token: signed(yours), ticket: foreign.Ticket, bearer: bearer(signed(yours))},
		"another client, by token only": {terms: mine, token: signed(yours)},
		"a client of before":            {terms: mine, token: signed(ended), ticket: old.Ticket, bearer: bearer(signed(ended))},
		"a client whose grant ended":    {terms: ended, token: signed(ended), ticket: old.Ticket},
		"another manager":               managedBy(is, controltoken.NewSecret(), mine),
		"a manager of before":           managedBy(controltoken.Incarnation{Epoch: 4, ID: "before"}, testSecret, mine),
		"a manager on a copy":           managedBy(controltoken.Incarnation{Epoch: 5, ID: "copy"}, testSecret, mine),
		"a newer manager on a copy":     managedBy(controltoken.Incarnation{Epoch: 6, ID: "copy"}, testSecret, mine),
		"a manager that says not which": {terms: mine, bearer: bearer(is.Token(testSecret))},
		"a manager as another":          {terms: mine, bearer: bearer(is.Token(testSecret)), run: controltoken.Incarnation{Epoch: 7, ID: "is"}.String()},
		"a client as manager":           {terms: mine, bearer: bearer(signed(mine)), run: is.String()},
		"a client of another cache":     but(func(t *managerv1.Terms) { t.CacheId = "yours" }),
		"a client of another grant":     but(func(t *managerv1.Terms) { t.Grant = "g1" }),
		"a client of another VM":        but(func(t *managerv1.Terms) { t.VmId = "" }),
		"a client of more regions":      but(func(t *managerv1.Terms) { t.Regions = 3 }),
		"a client of larger regions":    but(func(t *managerv1.Terms) { t.RegionSize *= 2 }),
		"a client of more threads":      but(func(t *managerv1.Terms) { t.Cores = 3 }),
		"a client of another epoch":     but(func(t *managerv1.Terms) { t.Epoch++ }),
		"a client that stays for longer": but(func(t *managerv1.Terms) {
			t.KeepMs = 0
		}),
		"a ticket that is short": {terms: mine, ticket: held.Ticket[:8]},
	} {
		for name, call := range all {
			if err := call(c); err == nil || !slices.Contains([]connect.Code{
				connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeNotFound, connect.CodeFailedPrecondition,
			}, connect.CodeOf(err)) {
				t.Errorf("%s by %s: %v", name, who, err)
			}
			if now := stateOf(s); now != before {
				t.Fatalf("%s by %s: %s, was %s", name, who, now, before)
			}
		}
	}

	// The right credentials are accepted, but only once.
	c := managedBy(is, testSecret, mine)
	c.token, c.ticket = signed(mine), held.Ticket
	for _, name := range []string{"Status", "Configure", "Pull", "Release", "Disconnect"} {
		if err := all[name](c); err != nil {
			t.Errorf("%s by the client: %v", name, err)
		}
	}
	if err := all["Connect"](c); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("connected by the token of a grant that ended: %v", err)
	}
}

// Terms are for one VM, and bound what is lent and how many threads serve it. Newer terms
// allow more threads.
func TestTermsBind(t *testing.T) {
	s, client := newServer(t, Options{Memory: 16 * regionSize, Cores: 8, VM: "vm"})
	for name, change := range map[string]func(*managerv1.Terms){
		"another VM":   func(t *managerv1.Terms) { t.VmId = "vm-2" },
		"no VM":        func(t *managerv1.Terms) { t.VmId = "" },
		"few threads":  func(t *managerv1.Terms) { t.Cores = 0 },
		"kept before":  func(t *managerv1.Terms) { t.KeepMs = -1 },
		"kept forever": func(t *managerv1.Terms) { t.KeepMs = 1 << 62 },
	} {
		terms := termsOf("cache", "g1")
		change(terms)
		if err := calls(t.Context(), client, nil)["Connect"](credentials{terms: terms, token: signed(terms)}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	terms := termsOf("cache", "g1")
	held := connectAs(t, client, terms)
	if got := leases(t, s); len(got) != 1 || got[0].Regions != 2 || got[0].Bytes != 2*regionSize {
		t.Errorf("lent: %v", got)
	}
	var change uint64
	configure := func(threads uint32, shown *managerv1.Terms, token string) error {
		change++
		_, err := client.Configure(t.Context(), connect.NewRequest(&serverv1.ConfigureRequest{
			CacheId: "cache", Grant: "g1", Ticket: held.Ticket, Configuration: configuration(threads, 4), Terms: shown, Token: token, Change: change,
		}))
		leases(t, s)
		return err
	}
	more, other := proto.CloneOf(terms), termsOf("cache", "g2")
	more.Cores, other.Cores = 4, 4
	for _, step := range []struct {
		name    string
		threads uint32
		shown   *managerv1.Terms
		token   string
		want    connect.Code
	}{
		{"as many", 2, nil, "", 0},
		{"more", 3, nil, "", connect.CodeInvalidArgument},
		{"more, by the same terms", 3, terms, signed(terms), connect.CodeInvalidArgument},
		{"more, by unsigned terms", 3, more, signed(terms), connect.CodeUnauthenticated},
		{"more, by another grant's", 3, other, signed(other), connect.CodeUnauthenticated},
		{"more than new terms", 5, more, signed(more), connect.CodeInvalidArgument},
		{"more, after a refusal", 3, nil, "", connect.CodeInvalidArgument},
		{"more, by new terms", 3, more, signed(more), 0},
		{"still more", 4, nil, "", 0},
	} {
		if err := configure(step.threads, step.shown, step.token); err != nil && connect.CodeOf(err) != step.want || err == nil && step.want != 0 {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

// A grant that its manager took back before its client connected is not lent.
func TestTakenBackBeforeItIsLent(t *testing.T) {
	_, client := newServer(t, Options{Memory: 16 * regionSize, Cores: 8})
	for _, named := range []bool{false, true} {
		terms := termsOf(fmt.Sprint(named), "g1")
		back := &serverv1.DisconnectRequest{CacheId: terms.CacheId}
		if named {
			back.Grant = terms.Grant
		}
		if _, err := client.Disconnect(t.Context(), connect.NewRequest(back)); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatal(err)
		}
		if err := calls(t.Context(), client, nil)["Connect"](credentials{terms: terms, token: signed(terms)}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("named=%v: %v", named, err)
		}
	}
}

// A server takes a grant back when its client has been silent for as long as its terms say.
// A connection, and each call with the ticket or the token, keeps it. The client then learns
// that the grant is gone; others get its memory.
func TestSilentClients(t *testing.T) {
	s, client := newServer(t, Options{Memory: 6 * regionSize, Cores: 8})
	const keep = time.Hour // of termsOf
	silent, busy, stays := termsOf("silent", "g1"), termsOf("busy", "g1"), termsOf("stays", "g1")
	stays.KeepMs = 0
	gone, held := connectAs(t, client, silent), connectAs(t, client, busy)
	connectAs(t, client, stays)
	all := calls(t.Context(), client, nil)
	lent := func(n int) {
		t.Helper()
		if got := leases(t, s); len(got) != n {
			t.Errorf("lent: %v, want %d grants", got, n)
		}
	}
	lent(3)
	for name, word := range map[string]func(){
		"Status":    func() { _ = all["Status"](credentials{terms: busy, ticket: held.Ticket}) },
		"Configure": func() { _ = all["Configure"](credentials{terms: busy, ticket: held.Ticket}) },
		"Connect":   func() { _ = all["Connect"](credentials{terms: busy, token: signed(busy)}) }, // it is connected already
		"a connection that is refused": func() {
			if _, err := dial(t, openFabric(t, held.Transport), held, redywire.Hello{Batch: 8, Depth: 1}); err == nil {
				t.Error("batches of 8")
			}
		},
	} {
		word()
		_ = all["Status"](credentials{terms: silent, ticket: gone.Ticket})
		for range 2 { // the server's own sweeps may come between
			s.sweep(keep * 2 / 5)
		}
		if got := leases(t, s); len(got) != 3 {
			t.Errorf("not kept by %s: %v", name, got)
		}
	}
	_ = all["Status"](credentials{terms: silent, ticket: held.Ticket}) // another's ticket is no word of the client
	p := dialRings(t, held, 4, 2)
	for range 3 {
		s.sweep(keep)
	}
	lent(2)
	if n := s.Metrics().Expired; n != 1 {
		t.Errorf("%d grants expired, want 1", n)
	}

	for name, call := range all {
		if name == "Pull" {
			continue // it needs a source
		}
		err := call(credentials{terms: silent, token: signed(silent), ticket: gone.Ticket})
		if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "cache silent, grant g1 was taken back") {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
	connectAs(t, client, termsOf("next", "g1"))
	if err := p.qp.Close(); err != nil {
		t.Fatal(err)
	}
	for { // until the server has noticed
		s.mu.Lock()
		g := s.grants[grantID{"busy", "g1"}]
		s.mu.Unlock()
		if !g.inUse() {
			break
		}
	}
	for range 2 {
		s.sweep(keep)
	}
	lent(1)
}

// The number of remembered grants that were taken back is bounded.
func TestSpentIsBounded(t *testing.T) {
	p := newSpent()
	for i := range 3 * maxSpent {
		p.add(grantID{"c", fmt.Sprint(i)})
		p.add(grantID{"c", fmt.Sprint(i)})
	}
	if len(p.set) != maxSpent || len(p.order) != maxSpent {
		t.Errorf("%d of %d", len(p.set), maxSpent)
	}
	for i := range 3 * maxSpent {
		if id := (grantID{"c", fmt.Sprint(i)}); p.has(id) != (i >= 2*maxSpent) {
			t.Fatalf("%v is remembered: %v", id, p.has(id))
		}
	}
}

// There is no server without a secret: its tokens could be made by anybody.
func TestSecretIsRequired(t *testing.T) {
	s, err := New(Options{Memory: regionSize})
	if err == nil {
		t.Fatal(s.Close())
	}
	if !strings.Contains(err.Error(), "ControlSecret is empty") {
		t.Error(err)
	}
}

// Terms that have ended lend nothing and allow no more threads. What was lent under them stays.
func TestTermsEnd(t *testing.T) {
	s, client := newServer(t, Options{Memory: 16 * regionSize, Cores: 8})
	terms := termsOf("cache", "g1")
	terms.NotAfterUnixMs = time.Now().Add(time.Hour).UnixMilli()
	held := connectAs(t, client, terms)

	ended := termsOf("cache", "g2")
	ended.NotAfterUnixMs = time.Now().Add(-time.Second).UnixMilli()
	before := stateOf(s)
	_, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: ended, Token: signed(ended), Configuration: configuration(1, 4),
	}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || stateOf(s) != before {
		t.Errorf("%v; %s, before %s", err, stateOf(s), before)
	}

	more := proto.CloneOf(terms)
	more.Cores, more.NotAfterUnixMs = 4, ended.NotAfterUnixMs
	for change, code := range []connect.Code{0, connect.CodeInvalidArgument} {
		threads := uint32(2 + change)
		_, err := client.Configure(t.Context(), connect.NewRequest(&serverv1.ConfigureRequest{
			CacheId: "cache", Grant: "g1", Ticket: held.Ticket, Configuration: configuration(threads, 4), Change: uint64(change) + 1,
			Terms: more, Token: signed(more),
		}))
		if got := connect.CodeOf(err); err != nil && got != code || err == nil && code != 0 {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}
