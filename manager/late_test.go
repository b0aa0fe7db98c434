package manager

import (
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
)

// delivery says when a Settle arrives: on time or not, and whether again, or for the first
// time, after the message with a number; 0: not again.
type delivery struct {
	onTime bool
	again  int
}

func (d delivery) String() string { return fmt.Sprintf("on time %v, after %d", d.onTime, d.again) }

// deliveries returns all deliveries of the Settle with a number, of so many messages.
func deliveries(number, messages int) []delivery {
	all := []delivery{{onTime: true}}
	for after := number + 1; after <= messages; after++ {
		all = append(all, delivery{true, after}, delivery{false, after})
	}
	if number == messages {
		all = append(all, delivery{true, number})
	}
	return all
}

// A client moves from grant to grant; its Settles arrive late, twice, or both, in all
// combinations. What it has is never released, and in the end it has nothing else.
func TestLateSettle(t *testing.T) {
	m, client := serve(t, Options{Transport: "mem"})
	await(t, announce(t, startNode(t, "node"), client), "registration")
	const messages = 6 // Reallocate and Settle, three times
	for _, second := range deliveries(2, messages) {
		for _, fourth := range deliveries(4, messages) {
			for _, sixth := range deliveries(6, messages) {
				run := &mover{t: t, m: m, client: client, late: map[int]delivery{2: second, 4: fourth, 6: sixth}}
				if run.play(messages); t.Failed() {
					t.Fatalf("Settle 2 %v; 4 %v; 6 %v", second, fourth, sixth)
				}
			}
		}
	}
}

// mover is a client that leaves its oldest grant in each round.
type mover struct {
	t      *testing.T
	m      *Manager
	client access.Client
	late   map[int]delivery // of Settles, by number
	cache  string
	has    []string // grants
}

func (r *mover) play(messages int) {
	ctx := testContext(r.t)
	ca, err := allocateBytes(r.t, r.client, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	r.cache, r.has = ca.GetCacheId(), []string{"g1"}
	requests := map[int]*managerv1.SettleRequest{}
	for number := 1; number <= messages; number++ {
		if number%2 == 1 {
			req := &managerv1.ReallocateRequest{CacheId: r.cache, Regions: 1, Change: uint64(number)}
			answer, err := r.client.Reallocate(ctx, connect.NewRequest(req))
			if err != nil {
				r.t.Fatal(err)
			}
			r.has = append(r.has, answer.Msg.GetGrants()[0].GetId())
			again, err := r.client.Reallocate(ctx, connect.NewRequest(req))
			if err == nil { // terms and sources are signed again, and end later
				for i, g := range again.Msg.GetGrants() {
					g.Token, g.Terms = answer.Msg.GetGrants()[i].GetToken(), answer.Msg.GetGrants()[i].GetTerms()
				}
				for i, s := range again.Msg.GetSources() {
					s.Signature, s.NotAfterUnixMs = answer.Msg.GetSources()[i].GetSignature(), answer.Msg.GetSources()[i].GetNotAfterUnixMs()
				}
			}
			if err != nil || !proto.Equal(again.Msg, answer.Msg) {
				r.t.Errorf("Reallocate %d again: %v, %v, want %v", number, again, err, answer.Msg)
			}
		} else {
			r.has = r.has[1:]
			req := &managerv1.SettleRequest{CacheId: r.cache, Capacity: 1 << 20, Change: uint64(number)}
			for _, g := range r.has {
				req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g, Regions: 1})
			}
			requests[number] = req
			if r.late[number].onTime {
				r.settle(req)
			}
		}
		for n := 2; n <= number; n += 2 {
			if r.late[n].again == number {
				r.settle(requests[n])
			}
		}
	}
	if got := r.grants(); !slices.Equal(got, r.has) {
		r.t.Errorf("the manager has %v, the client %v", got, r.has)
	}
	if _, err := r.client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{
		CacheId: r.cache, Regions: 1, Change: uint64(messages - 1),
	})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		r.t.Errorf("a Reallocate that was given up: %v", err)
	}
	if _, err := r.client.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: r.cache})); err != nil {
		r.t.Fatal(err)
	}
}

// settle delivers a Settle, which may be refused if it is not the latest.
func (r *mover) settle(req *managerv1.SettleRequest) {
	_, err := r.client.Settle(testContext(r.t), connect.NewRequest(req))
	if err != nil && connect.CodeOf(err) != connect.CodeFailedPrecondition {
		r.t.Error(err)
	}
	for _, g := range r.has {
		if got := r.grants(); !slices.Contains(got, g) {
			r.t.Errorf("Settle %d released %s: %v are left", req.GetChange(), g, got)
		}
	}
}

// grants returns the grants of the cache, including pending ones.
func (r *mover) grants() (all []string) {
	d, err := r.m.led().state.describeCache(r.cache)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range d.GetCache().GetGrants() {
		all = append(all, s.GetId())
	}
	return all
}

// Changes keep their numbers when the manager restarts.
func TestLateSettleAfterRestart(t *testing.T) {
	store := newCrashStore()
	open := func() (*Manager, access.Client) {
		return serve(t, Options{Transport: "mem", store: store, Moved: true})
	}
	_, client := open()
	await(t, announce(t, startNode(t, "node"), client), "registration")
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	settle := func(client access.Client, change uint64, grants ...string) error {
		req := &managerv1.SettleRequest{CacheId: ca.GetCacheId(), Capacity: 1 << 20, Change: change}
		for _, g := range grants {
			req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g, Regions: 1})
		}
		_, err := client.Settle(ctx, connect.NewRequest(req))
		return err
	}
	if err := settle(client, 2, "g1"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{CacheId: ca.GetCacheId(), Regions: 1, Change: 4})); err != nil {
		t.Fatal(err)
	}
	m, client := open()
	if err := settle(client, 1); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a Settle from before the one that was stored: %v", err)
	}
	if err := settle(client, 3, "g1"); err != nil {
		t.Error(err)
	}
	r := &mover{t: t, m: m, cache: ca.GetCacheId()}
	if got := r.grants(); !slices.Equal(got, []string{"g1", "g2"}) {
		t.Errorf("grants %v", got)
	}
}
