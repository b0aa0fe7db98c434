package server

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
)

// takeUpAs takes a grant up under terms of a holder.
func takeUpAs(ctx context.Context, client serverv1connect.CacheServerServiceClient, terms *managerv1.Terms, holder uint64) (*serverv1.ConnectResponse, error) {
	terms = proto.CloneOf(terms)
	terms.Holder = holder
	r, err := client.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
		Terms: terms, Token: signed(terms), Configuration: configuration(1, 4), TakeUp: true,
	}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// The next holder of a cache gets the bytes. The connections of the former one have ended, and
// its ticket, its token and its calls are refused.
func TestTakeUp(t *testing.T) {
	for _, name := range transporttest.Names(t) {
		t.Run(name, func(t *testing.T) {
			s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 4, Transport: name})
			terms := termsOf("cache", "g")
			old := connectAs(t, client, terms)
			p := openFabric(t, name)
			onesided, err := dial(t, p, old, redywire.Hello{Batch: 1, Depth: 4})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = onesided.Close() }()
			remote, err := onesided.Import(t.Context(), fabric.Token(old.RegionTokens[1]))
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, regionSize)
			for i := range want {
				want[i] = byte(rand.Uint32())
			}
			write := func(qp fabric.QueuePair, r fabric.Remote, b []byte) error {
				if err := errors.Join(qp.Write(b, r, 0, 1), qp.Submit()); err != nil {
					return err
				}
				return await(t, qp).Err
			}
			if err := write(onesided, remote, want); err != nil {
				t.Fatal(err)
			}
			ringed := dialRings(t, old, 4, 2)
			// The former client is also the holder of another grant, which it keeps.
			elsewhere, err := dial(t, p, connectAs(t, client, termsOf("another cache", "g")), redywire.Hello{Batch: 1, Depth: 4})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = elsewhere.Close() }()
			if _, err := elsewhere.Import(t.Context(), fabric.Token(old.RegionTokens[1])); !errors.Is(err, fabric.ErrBadToken) {
				t.Errorf("an import over the connection of another grant: %v", err)
			}

			taken, err := takeUpAs(t.Context(), client, terms, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := write(onesided, remote, make([]byte, regionSize)); err == nil {
				t.Error("the former client writes on")
			}
			if _, err := elsewhere.Import(t.Context(), fabric.Token(old.RegionTokens[1])); !errors.Is(err, fabric.ErrBadToken) {
				t.Errorf("an import of a former token: %v", err)
			}
			for ringed.qp.Err() == nil {
				_ = ringed.qp.Wait(t.Context())
			}
			for call, err := range map[string]error{
				"Status":     calls(t.Context(), client, old)["Status"](credentials{terms: terms, ticket: old.Ticket}),
				"Release":    calls(t.Context(), client, old)["Release"](credentials{terms: terms, ticket: old.Ticket}),
				"Configure":  calls(t.Context(), client, old)["Configure"](credentials{terms: terms, ticket: old.Ticket}),
				"Pull":       calls(t.Context(), client, old)["Pull"](credentials{terms: terms, ticket: old.Ticket}),
				"Disconnect": calls(t.Context(), client, old)["Disconnect"](credentials{terms: terms, ticket: old.Ticket}),
			} {
				if connect.CodeOf(err) != connect.CodePermissionDenied {
					t.Errorf("%s with the former ticket: %v", call, err)
				}
			}
			_, byToken := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{
				CacheId: "cache", Grant: "g", Terms: terms, Token: signed(terms),
			}))
			_, again := takeUpAs(t.Context(), client, terms, 0)
			for call, err := range map[string]error{"Disconnect": byToken, "Connect": again} {
				if connect.CodeOf(err) != connect.CodeFailedPrecondition {
					t.Errorf("%s with the former token: %v", call, err)
				}
			}
			if _, err := dial(t, p, old, redywire.Hello{Batch: 1, Depth: 4}); !errors.Is(err, fabric.ErrRejected) {
				t.Errorf("a connection with the former ticket: %v", err)
			}

			repeated, err := takeUpAs(t.Context(), client, terms, 1)
			if err != nil || !proto.Equal(repeated, taken) {
				t.Errorf("a repetition answers %v, %v; the call %v", repeated, err, taken)
			}
			qp, err := dial(t, p, taken, redywire.Hello{Batch: 1, Depth: 4})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = qp.Close() }()
			if remote, err = qp.Import(t.Context(), fabric.Token(taken.RegionTokens[1])); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, regionSize)
			if err := errors.Join(qp.Read(got, remote, 0, 1), qp.Submit(), await(t, qp).Err); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the bytes are not those of before: %v", err)
			}
			if repeated, err = takeUpAs(t.Context(), client, terms, 1); err != nil || qp.Err() != nil {
				t.Errorf("a repetition ends the holder's own connection: %v, %v", err, qp.Err())
			}
			if got := leases(t, s); len(got) != 2 || got[0].Regions != 2 {
				t.Errorf("lent: %v", got)
			}
			// Calls are numbered anew.
			if err := calls(t.Context(), client, repeated)["Configure"](credentials{terms: terms, ticket: repeated.Ticket}); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is not lent, or not as the terms say, cannot be taken up.
func TestTakeUpIsChecked(t *testing.T) {
	s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 2})
	terms := termsOf("cache", "g")
	if _, err := takeUpAs(t.Context(), client, terms, 1); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a grant that was never lent: %v", err)
	}
	answer := connectAs(t, client, terms)
	before := stateOf(s)
	for name, tc := range map[string]struct {
		change func(*managerv1.Terms)
		code   connect.Code
	}{
		"another region size": {func(t *managerv1.Terms) { t.RegionSize *= 2 }, connect.CodeInvalidArgument},
		"another grant":       {func(t *managerv1.Terms) { t.Grant = "h" }, connect.CodeNotFound},
		"no cores":            {func(t *managerv1.Terms) { t.Cores = 0 }, connect.CodeInvalidArgument},
	} {
		other := proto.CloneOf(terms)
		tc.change(other)
		if _, err := takeUpAs(t.Context(), client, other, 1); connect.CodeOf(err) != tc.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	forged := proto.CloneOf(terms)
	forged.Holder = 1
	_, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: forged, Token: signed(terms), Configuration: configuration(1, 4), TakeUp: true,
	}))
	if connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("terms with another holder than was signed: %v", err)
	}
	if after := stateOf(s); after != before {
		t.Errorf("%s, before the refused calls %s", after, before)
	}
	// Some regions were released: the others are taken up.
	if _, err := client.Release(t.Context(), connect.NewRequest(&serverv1.ReleaseRequest{CacheId: "cache", Grant: "g", Ticket: answer.Ticket, Keep: 1})); err != nil {
		t.Fatal(err)
	}
	if answer, err = takeUpAs(t.Context(), client, terms, 5); err != nil || len(answer.RegionTokens) != 1 {
		t.Errorf("after a release: %v, %v", answer, err)
	}
	if _, err := takeUpAs(t.Context(), client, terms, 4); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("an earlier holder: %v", err)
	}
	if _, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache", Grant: "g", Ticket: answer.Ticket})); err != nil {
		t.Error(err)
	}
	if _, err := takeUpAs(t.Context(), client, terms, 6); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a grant that was taken back: %v", err)
	}
	leases(t, s)
}

// A pull of the former holder ends before the next one has the grant.
func TestTakeUpEndsPulls(t *testing.T) {
	const size = 4 << 20
	_, fromClient := newServer(t, Options{Memory: 64 << 20})
	_, toClient := newServer(t, Options{Memory: 64 << 20, Cores: 1})
	source, target := lendBig(t, fromClient, "old", 1, size), lendBig(t, toClient, "new", 1, size)
	m := pullFrom(source, target, "new", size)
	m.BytesPerSecond = 1 << 20 // takes some seconds
	stream, err := toClient.Pull(t.Context(), connect.NewRequest(m))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() { // the pull is pending
		t.Fatal(stream.Err())
	}
	terms := &managerv1.Terms{CacheId: "cache", Grant: "new", Regions: 1, RegionSize: size, Cores: 16}
	if _, err := takeUpAs(t.Context(), toClient, terms, 1); err != nil {
		t.Error(err)
	}
	for stream.Receive() {
	}
	if err := stream.Err(); connect.CodeOf(err) != connect.CodeAborted {
		t.Error(err)
	}
	_ = stream.Close()
}

// Many holders take a grant up at once, while others connect, release it or end: calls end, and
// the highest number has the grant.
func TestTakeUpRaces(t *testing.T) {
	for _, name := range transporttest.Names(t) {
		t.Run(name, func(t *testing.T) {
			s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 2, Transport: name})
			terms := termsOf("cache", "g")
			first := connectAs(t, client, terms)
			p := openFabric(t, name)
			const holders = 20
			succeeded := func(holder uint64) bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.grants[grantID{"cache", "g"}].holder > holder
			}
			var all sync.WaitGroup
			for holder := range uint64(holders) {
				all.Go(func() {
					answer, err := takeUpAs(t.Context(), client, terms, holder+1)
					if err != nil {
						if connect.CodeOf(err) != connect.CodeFailedPrecondition {
							t.Error(err)
						}
						return
					}
					qp, err := dial(t, p, answer, redywire.Hello{Batch: 1, Depth: 4, Owner: holder + 1})
					if err == nil {
						_, _ = qp.Import(t.Context(), fabric.Token(answer.RegionTokens[0]))
						_ = qp.Close()
					} else if !errors.Is(err, fabric.ErrRejected) && !succeeded(holder+1) {
						t.Error(err) // else the next take-up may have ended it
					}
				})
				all.Go(func() {
					_, err := client.Release(t.Context(), connect.NewRequest(&serverv1.ReleaseRequest{CacheId: "cache", Grant: "g", Ticket: first.Ticket, Keep: 2}))
					if err != nil && connect.CodeOf(err) != connect.CodePermissionDenied {
						t.Error(err)
					}
				})
			}
			all.Wait()
			answer, err := takeUpAs(t.Context(), client, terms, holders)
			if err != nil || len(answer.RegionTokens) != 2 {
				t.Fatalf("%v, %v", answer, err)
			}
			leases(t, s)
		})
	}
}

// A grant whose holder has ended is kept for the time that the next terms say.
func TestTakeUpKeeps(t *testing.T) {
	s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 2})
	terms := termsOf("cache", "g")
	terms.KeepMs = 1
	connectAs(t, client, terms)
	later := proto.CloneOf(terms)
	later.KeepMs = time.Hour.Milliseconds()
	if _, err := takeUpAs(t.Context(), client, later, 1); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.sweep(time.Minute)
	}
	if got := leases(t, s); len(got) != 1 {
		t.Error("the grant was taken back")
	}
}
