package server

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/controltoken"
)

// credentials are what a caller presents; each call uses some of them.
type credentials struct {
	terms  controltoken.Terms // the terms that the caller claims
	token  string
	ticket []byte
	bearer string
	run    string // of a manager
	open   bool   // a server without a secret accepts Connect, Disconnect and Status
}

// calls are all calls of the control API, with arguments that would change or reveal something
// if the call were accepted.
func calls(ctx context.Context, client serverv1connect.CacheServerServiceClient, source *serverv1.ConnectResponse) map[string]func(credentials) error {
	return map[string]func(credentials) error{
		"Connect": func(c credentials) error {
			_, err := client.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
				CacheId: c.terms.Cache, Grant: c.terms.Grant, Regions: c.terms.Regions, RegionSize: c.terms.RegionSize, Cores: c.terms.Cores,
				Token: c.token, Configuration: configuration(max(c.terms.Cores, 1), 4),
			}))
			return err
		},
		"Disconnect": func(c credentials) error {
			req := connect.NewRequest(&serverv1.DisconnectRequest{
				CacheId: c.terms.Cache, Grant: c.terms.Grant, Regions: c.terms.Regions, RegionSize: c.terms.RegionSize, Cores: c.terms.Cores,
				Token: c.token, Ticket: c.ticket,
			})
			req.Header().Set("Authorization", c.bearer)
			req.Header().Set(controltoken.IncarnationHeader, c.run)
			_, err := client.Disconnect(ctx, req)
			return err
		},
		"Release": func(c credentials) error {
			_, err := client.Release(ctx, connect.NewRequest(&serverv1.ReleaseRequest{CacheId: c.terms.Cache, Grant: c.terms.Grant, Ticket: c.ticket}))
			return err
		},
		"Configure": func(c credentials) error {
			_, err := client.Configure(ctx, connect.NewRequest(&serverv1.ConfigureRequest{
				CacheId: c.terms.Cache, Grant: c.terms.Grant, Ticket: c.ticket, Configuration: configuration(2, 4),
			}))
			return err
		},
		"Pull": func(c credentials) error {
			stream, err := client.Pull(ctx, connect.NewRequest(&serverv1.PullRequest{
				CacheId: c.terms.Cache, Grant: c.terms.Grant, Ticket: c.ticket, FabricAddr: source.FabricAddr, SourceTicket: source.Ticket,
				Regions: []*serverv1.PullRegion{{SourceToken: source.RegionTokens[0], Bytes: regionSize}},
			}))
			if err != nil {
				return err
			}
			for stream.Receive() {
			}
			defer func() { _ = stream.Close() }()
			return stream.Err()
		},
		"Status": func(c credentials) error {
			req := connect.NewRequest(&serverv1.StatusRequest{})
			req.Header().Set("Authorization", c.bearer)
			req.Header().Set(controltoken.IncarnationHeader, c.run)
			_, err := client.Status(ctx, req)
			return err
		},
	}
}

// No call changes or reveals anything without the required credentials. Tested are missing,
// foreign and expired ones, with and without a secret and TLS.
func TestStrangers(t *testing.T) {
	for _, secret := range []string{"", controltoken.NewSecret()} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("secret=%v,tls=%v", secret != "", secure), func(t *testing.T) {
				s, _ := newServer(t, Options{Memory: 16 * regionSize, Cores: 8, ControlSecret: secret})
				web := httptest.NewUnstartedServer(s.Handler())
				if secure {
					web.StartTLS()
				} else {
					web.Start()
				}
				t.Cleanup(web.Close)
				strangers(t, s, serverv1connect.NewCacheServerServiceClient(web.Client(), web.URL), secret)
			})
		}
	}
}

func strangers(t *testing.T, s *Server, client serverv1connect.CacheServerServiceClient, secret string) {
	ctx := t.Context()
	lend := func(cache, grant string) (controltoken.Terms, *serverv1.ConnectResponse) {
		t.Helper()
		terms := controltoken.Terms{Cache: cache, Grant: grant, Regions: 2, RegionSize: regionSize, Cores: 1}
		r, err := client.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
			CacheId: cache, Grant: grant, Regions: 2, RegionSize: regionSize, Cores: 1, Token: terms.Token(secret), Configuration: configuration(1, 4),
		}))
		if err != nil {
			t.Fatal(err)
		}
		return terms, r.Msg
	}
	mine, held := lend("mine", "g1")
	yours, foreign := lend("yours", "g1")
	ended, old := lend("mine", "g0")
	if _, err := client.Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "mine", Grant: "g0", Ticket: old.Ticket})); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		r, err := s.Status(ctx, nil) // not by the API
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprint(r.Msg, s.cores, len(s.tickets))
	}
	is := controltoken.Incarnation{Epoch: 5, ID: "is", Bound: time.Hour}
	if err := s.Obey(is); err != nil {
		t.Fatal(err)
	}
	before := state()

	all := calls(ctx, client, foreign)
	methods := serverv1.File_redykv_server_v1_server_proto.Services().ByName("CacheServerService").Methods()
	for i := range methods.Len() {
		if name := string(methods.Get(i).Name()); all[name] == nil {
			t.Errorf("%s is not tried", name)
		}
	}
	next := func(c func(*controltoken.Terms)) controltoken.Terms {
		terms := mine
		terms.Grant = "g2"
		c(&terms)
		return terms
	}
	bearer := func(token string) string { return "Bearer " + token }
	manager := func(m controltoken.Incarnation, secret string) credentials {
		return credentials{terms: mine, bearer: bearer(m.Token(secret)), run: m.String(), open: true}
	}
	for who, c := range map[string]credentials{
		"nobody":                        {terms: mine, open: true},
		"nobody, of all of a cache":     {terms: controltoken.Terms{Cache: "mine"}, open: true},
		"nobody, of a grant to come":    {terms: next(func(*controltoken.Terms) {}), open: true},
		"another client":                {terms: mine, token: yours.Token(secret), ticket: foreign.Ticket, bearer: bearer(yours.Token(secret))},
		"another client, by token only": {terms: mine, token: yours.Token(secret), open: true},
		"a client of before":            {terms: mine, token: ended.Token(secret), ticket: old.Ticket, bearer: bearer(ended.Token(secret))},
		"a client whose grant ended":    {terms: ended, token: ended.Token(secret), ticket: old.Ticket, open: true},
		"another manager":               manager(is, controltoken.NewSecret()),
		"a manager of before":           manager(controltoken.Incarnation{Epoch: 4, ID: "before"}, secret),
		"a manager on a copy":           manager(controltoken.Incarnation{Epoch: 5, ID: "copy"}, secret),
		"a newer manager on a copy":     manager(controltoken.Incarnation{Epoch: 6, ID: "copy"}, secret),
		"a manager that says not which": {terms: mine, bearer: bearer(is.Token(secret)), open: true},
		"a manager as another":          {terms: mine, bearer: bearer(is.Token(secret)), run: controltoken.Incarnation{Epoch: 7, ID: "is"}.String(), open: true},
		"a client as manager":           {terms: mine, bearer: bearer(mine.Token(secret)), open: true},
		"a client of more regions":      {terms: next(func(t *controltoken.Terms) { t.Regions = 3 }), token: next(func(*controltoken.Terms) {}).Token(secret), open: true},
		"a client of larger regions":    {terms: next(func(t *controltoken.Terms) { t.RegionSize *= 2 }), token: next(func(*controltoken.Terms) {}).Token(secret), open: true},
		"a client of more threads":      {terms: next(func(t *controltoken.Terms) { t.Cores = 2 }), token: next(func(*controltoken.Terms) {}).Token(secret), open: true},
		"a ticket that is short":        {terms: mine, ticket: held.Ticket[:8]},
	} {
		for name, call := range all {
			if secret == "" && (name == "Connect" || name == "Status" || name == "Disconnect" && c.open) {
				continue
			}
			if err := call(c); err == nil || !slices.Contains([]connect.Code{
				connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeNotFound, connect.CodeFailedPrecondition,
			}, connect.CodeOf(err)) {
				t.Errorf("%s by %s: %v", name, who, err)
			}
			if now := state(); now != before {
				t.Fatalf("%s by %s: %s, was %s", name, who, now, before)
			}
		}
	}

	// The right credentials are accepted, but only once.
	c := credentials{terms: mine, token: mine.Token(secret), ticket: held.Ticket, bearer: bearer(is.Token(secret)), run: is.String()}
	for _, name := range []string{"Status", "Configure", "Pull", "Release", "Disconnect"} {
		if err := all[name](c); err != nil {
			t.Errorf("%s by the client: %v", name, err)
		}
	}
	if err := all["Connect"](c); secret != "" && connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("connected by the token of a grant that ended: %v", err)
	}
}

// A grant that its manager took back before its client connected is not lent.
func TestTakenBackBeforeItIsLent(t *testing.T) {
	secret := controltoken.NewSecret()
	_, client := newServer(t, Options{Memory: 16 * regionSize, Cores: 8, ControlSecret: secret})
	for _, named := range []bool{false, true} {
		terms := controltoken.Terms{Cache: fmt.Sprint(named), Grant: "g1", Regions: 1, RegionSize: regionSize, Cores: 1}
		back := connect.NewRequest(&serverv1.DisconnectRequest{CacheId: terms.Cache})
		if named {
			back.Msg.Grant = terms.Grant
		}
		var m controltoken.Incarnation
		m.ID = "m"
		back.Header().Set("Authorization", "Bearer "+m.Token(secret))
		back.Header().Set(controltoken.IncarnationHeader, m.String())
		if _, err := client.Disconnect(t.Context(), back); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatal(err)
		}
		if err := calls(t.Context(), client, nil)["Connect"](credentials{terms: terms, token: terms.Token(secret)}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("named=%v: %v", named, err)
		}
	}
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
