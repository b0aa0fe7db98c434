package manager

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/model"
)

// wired returns an error as it is after transmission over the network.
func wired(t *testing.T, code connect.Code, err error) error {
	t.Helper()
	sent, ok := errors.AsType[*connect.Error](api.Refuse(code, fmt.Errorf("context: %w", err)))
	if !ok {
		t.Fatalf("%v is no answer", err)
	}
	received := connect.NewError(sent.Code(), errors.New(sent.Message()))
	for _, d := range sent.Details() {
		received.AddDetail(d)
	}
	return api.Typed(received)
}

// The type, the text and the code of an error survive transmission.
func TestErrorsArrive(t *testing.T) {
	capacity := &api.CapacityError{What: "here", Asked: 2 << 20, Available: 1 << 20, Why: "it is full"}
	err := wired(t, connect.CodeResourceExhausted, capacity)
	if got, ok := errors.AsType[*api.CapacityError](err); !ok || *got != *capacity {
		t.Errorf("capacity: %v", err)
	}
	if err.Error() != "resource_exhausted: context: here: 2MiB asked for, 1MiB available" || connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("words %q, code %v", err, connect.CodeOf(err))
	}
	region := &api.RegionError{Asked: "moon", Known: []string{"east", "west"}}
	err = wired(t, connect.CodeInvalidArgument, region)
	if got, ok := errors.AsType[*api.RegionError](err); !ok || got.Asked != region.Asked || !slices.Equal(got.Known, region.Known) {
		t.Errorf("region: %v", err)
	}
	err = wired(t, connect.CodeInvalidArgument, refuseSLO(slo(1, 100, 64), &model.ImpossibleError{
		Asked:        model.SLO{LatencyUs: 1, Mops: 100},
		AtLatency:    model.Found{Config: model.Config{C: 3, S: 2, B: 1, Q: 4}, Predicted: model.Performance{LatencyUs: 1, Mops: 2}},
		AtThroughput: model.Found{Predicted: model.Performance{LatencyUs: 1000, Mops: 100}},
	}, ""))
	refused, ok := errors.AsType[*api.SLOError](err)
	if !ok || refused.Asked.GetMinThroughputMops() != 100 || refused.Nearest.GetMinThroughputMops() != 2 || refused.Nearest.GetMaxLatencyUs() != 1 || refused.Nearest.GetRecordSize() != 64 ||
		refused.Configuration.GetClientThreads() != 3 || refused.Configuration.GetServerThreads() != 2 || refused.Configuration.GetQueueDepth() != 4 ||
		!strings.Contains(err.Error(), "within that latency at most 2 Mop/s") {
		t.Errorf("SLO: %v", err)
	}
	token := &api.TokenError{Problem: api.TokenExpired, Name: "old", Expired: time.UnixMilli(1_600_000_000_000)}
	if got, ok := errors.AsType[*api.TokenError](wired(t, connect.CodeUnauthenticated, token)); !ok || got.Error() != token.Error() || got.Problem != api.TokenExpired {
		t.Errorf("token: %v", got)
	}
	for _, plain := range []error{errors.New("other"), api.Refuse(connect.CodeInternal, errors.New("other")), nil} {
		if got := api.Typed(plain); !errors.Is(got, plain) || fmt.Sprint(got) != fmt.Sprint(plain) {
			t.Errorf("%v has become %v", plain, got)
		}
	}
}

// A bad request is refused with a typed error, and changes nothing: neither the state nor a
// byte of its store.
func TestRefusalsChangeNothing(t *testing.T) {
	a := newScripted(t, 4<<20)
	s := newCrashStore()
	m, client := serve(t, Options{Allocator: a, store: s, VMMemory: 1 << 20})
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	id, grant := ca.GetCacheId(), ca.GetGrants()[0].GetId()
	allocate := func(r *managerv1.AllocateRequest) func() error {
		r.RequestId = cmp.Or(r.RequestId, newRequestID())
		return func() error { _, err := client.Allocate(ctx, connect.NewRequest(r)); return err }
	}
	reallocate := func(r *managerv1.ReallocateRequest) func() error {
		return func() error { _, err := client.Reallocate(ctx, connect.NewRequest(r)); return err }
	}
	settle := func(r *managerv1.SettleRequest) func() error {
		return func() error { _, err := client.Settle(ctx, connect.NewRequest(r)); return err }
	}
	isCapacity := func(err error) bool {
		e, ok := errors.AsType[*api.CapacityError](err)
		return ok && e.Asked > e.Available
	}
	isNothing := func(most uint64) func(error) bool { // checks the available capacity
		return func(err error) bool {
			e, ok := errors.AsType[*api.CapacityError](err)
			return ok && e.Asked == 0 && e.Available == most
		}
	}
	isRegion := func(err error) bool {
		e, ok := errors.AsType[*api.RegionError](err)
		return ok && e.Asked == "moon"
	}
	launchFails := func(outcome string, r *managerv1.AllocateRequest) func() error {
		return func() error {
			a.expect("ok", outcome)
			return allocate(r)()
		}
	}
	for _, tc := range []struct {
		name string
		call func() error
		code connect.Code
		is   func(error) bool
	}{
		{"a request without an id", func() error {
			_, err := client.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{Capacity: 1}))
			return err
		}, connect.CodeInvalidArgument, nil},
		{"a request with a short id", allocate(&managerv1.AllocateRequest{Capacity: 1, RequestId: "one"}), connect.CodeInvalidArgument, nil},
		{"nothing asked for", allocate(&managerv1.AllocateRequest{}), connect.CodeInvalidArgument, isNothing(2 << 20)},
		{"nothing asked for in regions", allocate(&managerv1.AllocateRequest{RegionSize: 1 << 20}), connect.CodeInvalidArgument, isNothing(2 << 20)},
		{"more regions than there can be", allocate(&managerv1.AllocateRequest{Capacity: 1 << 40, RegionSize: 4096}), connect.CodeInvalidArgument, isCapacity},
		{"a region of no size", allocate(&managerv1.AllocateRequest{Capacity: 1, RegionSize: 3}), connect.CodeInvalidArgument, nil},
		{"too much", allocate(&managerv1.AllocateRequest{Capacity: 8 << 20, RegionSize: 1 << 20}), connect.CodeResourceExhausted, isCapacity},
		{"nowhere", allocate(&managerv1.AllocateRequest{Capacity: 1, CloudRegion: "moon"}), connect.CodeInvalidArgument, isRegion},
		{"no such transport", allocate(&managerv1.AllocateRequest{Capacity: 1, Transport: "pigeon"}), connect.CodeInvalidArgument, nil},
		{"a VM that is refused", launchFails("refuse", &managerv1.AllocateRequest{Capacity: 2 << 20, RegionSize: 1 << 20}), connect.CodeResourceExhausted, isCapacity},
		{"a VM that dies", launchFails("die", &managerv1.AllocateRequest{Capacity: 2 << 20, RegionSize: 1 << 20}), connect.CodeUnavailable, nil},
		{"more for nobody", reallocate(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: "nobody", Regions: 1}), connect.CodeNotFound, nil},
		{"no more", reallocate(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: id}), connect.CodeInvalidArgument, nil},
		{"too much more", reallocate(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: id, Regions: 60_000}), connect.CodeResourceExhausted, isCapacity},
		{"settle with a stranger", settle(&managerv1.SettleRequest{Change: nextChange(), CacheId: id, Capacity: 1, Grants: []*managerv1.SettledGrant{{Id: "x", Regions: 1}}}), connect.CodeFailedPrecondition, nil},
		{"settle for more", settle(&managerv1.SettleRequest{Change: nextChange(), CacheId: id, Capacity: 1, Grants: []*managerv1.SettledGrant{{Id: grant, Regions: 3}}}), connect.CodeInvalidArgument, nil},
		{"settle for nothing", settle(&managerv1.SettleRequest{Change: nextChange(), CacheId: id, Grants: []*managerv1.SettledGrant{{Id: grant, Regions: 1}}}), connect.CodeInvalidArgument, nil},
		{"renew nobody", func() error {
			_, err := client.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: "nobody"}))
			return err
		}, connect.CodeNotFound, nil},
		{"deallocate nobody", func() error {
			_, err := client.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: "nobody"}))
			return cmp.Or(err, errUnknownCache)
		}, connect.CodeUnknown, nil},
		{"reclaim nobody", func() error {
			_, err := client.Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: "nobody"}))
			return err
		}, connect.CodeNotFound, nil},
		{"register nothing", func() error {
			_, err := client.Register(ctx, connect.NewRequest(&managerv1.RegisterRequest{Vm: &managerv1.Vm{Id: "x"}}))
			return err
		}, connect.CodeInvalidArgument, nil},
	} {
		before := fmt.Sprint(m.led().state.describe(), s.entries, a.used())
		err := tc.call()
		if connect.CodeOf(err) != tc.code || tc.is != nil && !tc.is(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
		m.led().rest(t)
		if after := fmt.Sprint(m.led().state.describe(), s.entries, a.used()); after != before {
			t.Errorf("%s:\nbefore %s\nafter  %s", tc.name, before, after)
		}
	}
}

// used returns the memory of all running VMs.
func (s *scripted) used() uint64 {
	return s.limit - s.Room()
}

func TestHealth(t *testing.T) {
	s := newCrashStore()
	m, client := serve(t, Options{Allocator: newScripted(t, 4<<20), store: s, Tokens: nil})
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(testContext(t), http.MethodGet, m.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := api.HTTPClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text := get(path); code != http.StatusOK || text != "ok\n" {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if _, err := allocateBytes(t, client, 1<<20); err != nil {
		t.Error(err)
	}
	if code, text := get("/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d %s", code, strings.TrimSpace(text))
	}
}
