package manager

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
	"github.com/redykv/redykv/manager/plan"
)

// probe asks a manager's endpoint.
func probe(m *Manager, path string) (code int, text string) {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// A write of the catalog does not return for a minute: calls fail before, and the probes
// with them. Afterwards the leader goes on.
func TestCatalogHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := catalogtest.NewFaulty(catalog.NewMemory())
		m, err := New(Options{store: store, Lease: -1, Heartbeat: time.Hour, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close(context.Background()) }()
		check := func(want int) {
			t.Helper()
			for _, path := range []string{"/healthz", "/readyz"} {
				if code, text := probe(m, path); code != want {
					t.Errorf("%s: %d %s", path, code, text)
				}
			}
		}
		register := func(id string) error {
			_, err := service{m: m}.Register(t.Context(), connect.NewRequest(&managerv1.RegisterRequest{
				Vm: &managerv1.Vm{Id: id, ControlUrl: "http://" + id + ":1", Transport: "tcp", FabricAddr: id + ":2", Memory: 1 << 20, FreeMemory: 1 << 20, Start: 1},
			}))
			return err
		}
		if err := register("a"); err != nil {
			t.Fatal(err)
		}
		check(http.StatusOK)
		store.Delay(time.Minute)
		began := time.Now()
		err = register("b")
		if took := time.Since(began); connect.CodeOf(err) != connect.CodeUnavailable || took >= time.Minute {
			t.Errorf("a call whose write hangs: %v after %v", err, took)
		}
		check(http.StatusServiceUnavailable)
		store.Delay(0)
		time.Sleep(2 * time.Minute)
		check(http.StatusOK)
		if err := register("c"); err != nil {
			t.Error(err)
		}
		// Nobody changes anything, and it is noticed.
		store.Delay(time.Minute)
		time.Sleep(30 * time.Second)
		check(http.StatusServiceUnavailable)
		store.Delay(0)
		time.Sleep(2 * time.Minute)
		check(http.StatusOK)
	})
}

// deaf is an allocator whose calls end when they are told to, whatever their context.
type deaf struct {
	allocator.Allocator

	until chan struct{}
}

func (deaf) Transport() string     { return "tcp" }
func (deaf) Attach(allocator.Host) {}
func (deaf) Close() error          { return nil }

func (deaf) Terminate(context.Context, string, string) error { return nil }

func (deaf) Offers(context.Context, string, string) ([]plan.Offer, error) {
	return []plan.Offer{{Type: "a", Memory: 64 << 20, Cores: 4, Price: 1, Available: -1}}, nil
}

func (d deaf) Launch(context.Context, allocator.VMSpec) error {
	<-d.until
	return errors.New("launched nothing")
}

func (d deaf) Restore(context.Context, uint64, []string, []string) ([]string, error) {
	<-d.until
	return nil, nil
}

// A step whose call ignores its end makes the leader unhealthy.
func TestStepHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deaf{until: make(chan struct{})}
		m, err := New(Options{Allocator: struct{ allocator.Allocator }{d}, Lease: -1, Heartbeat: time.Hour, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close(context.Background()) }()
		asked := make(chan error, 1)
		go func() {
			_, err := service{m: m}.Allocate(t.Context(), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20}))
			asked <- err
		}()
		time.Sleep(30 * time.Second) // which a launch may take
		if code, text := probe(m, "/healthz"); code != http.StatusOK {
			t.Errorf("during a launch: %d %s", code, text)
		}
		time.Sleep(time.Minute)
		if code, text := probe(m, "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "step vm/") {
			t.Errorf("a launch that hangs: %d %s", code, text)
		}
		close(d.until)
		if err := <-asked; err == nil {
			t.Error("a cache without a VM")
		}
		time.Sleep(5 * time.Second)
		if code, text := probe(m, "/healthz"); code != http.StatusOK {
			t.Errorf("afterwards: %d %s", code, text)
		}
	})
}

// A leader that does not come to lead, as its allocator does not answer, gives way.
func TestTakeoverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deaf{until: make(chan struct{})}
		store := catalog.NewMemory()
		stuck, err := New(Options{store: electing{store}, Allocator: d, Lease: -1, Heartbeat: time.Hour, URL: "http://a", Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stuck.Close(context.Background()) }()
		stuck.running.Go(func() { stuck.run(nil) })
		synctest.Wait()
		other, err := New(Options{store: electing{store.Join()}, Lease: -1, Heartbeat: time.Hour, URL: "http://b", Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close(context.Background()) }()
		other.running.Go(func() { other.run(nil) })
		time.Sleep(30 * time.Second)
		if other.led() != nil {
			t.Fatal("it gave way within the time that a takeover may take")
		}
		time.Sleep(time.Minute)
		if other.led() == nil {
			t.Error("the other manager does not lead")
		}
		if code, text := probe(stuck, "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(text, takeover) {
			t.Errorf("a takeover that hangs: %d %s", code, text)
		}
		close(d.until)
		synctest.Wait()
		if code, text := probe(stuck, "/readyz"); code != http.StatusOK {
			t.Errorf("afterwards it follows the other one: %d %s", code, text)
		}
	})
}

// deposed is a catalog whose term has ended before its manager hears of it.
type deposed struct {
	*catalog.Memory

	by atomic.Bool
}

type deposedTerm struct {
	catalog.Term
	of *deposed
}

func (d *deposed) Campaign(ctx context.Context, url string) (catalog.Term, error) {
	t, err := d.Memory.Campaign(ctx, url)
	return deposedTerm{t, d}, err
}

func (t deposedTerm) Commit(ctx context.Context, changes []catalog.Change) error {
	if t.of.by.Load() {
		return catalog.ErrNotLeader
	}
	return t.Term.Commit(ctx, changes)
}

// A call that changes nothing, as an earlier one has done so, is not answered by a leader whose term
// has ended: a later leader may know better.
func TestRepeatedCallOfDeposedLeader(t *testing.T) {
	d := &deposed{Memory: catalog.NewMemory()}
	m, err := New(Options{store: d, Lease: -1, Heartbeat: time.Hour, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close(context.Background()) }()
	deallocate := func() error {
		_, err := service{m: m}.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: "none"}))
		return err
	}
	if err := deallocate(); err != nil {
		t.Error(err)
	}
	d.by.Store(true)
	if err := deallocate(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("answered by a leader whose term has ended: %v", err)
	}
}

// electing is a catalog that managers share.
type electing struct{ *catalog.Memory }

func (electing) Shared() bool { return true }

// A leader whose state is locked says so, and another one leads.
func TestStuckLeaderIsReplaced(t *testing.T) {
	store := catalog.NewMemory()
	var all [2]*Manager
	var l *leader
	for i, s := range []catalog.Store{electing{store}, electing{store.Join()}} {
		opts := Options{store: s, Lease: -1, Heartbeat: time.Hour, URL: "http://" + string(rune('a'+i)), Logger: quiet()}
		if i == 0 {
			opts.stuckAfter = time.Second
		}
		m, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		all[i] = m
		m.running.Go(func() { m.run(nil) })
		if i == 0 {
			testrun.Until(t, "the first manager leads", func() bool {
				l = m.led()
				return l != nil
			})
		}
	}
	stuck, other := all[0], all[1]
	if code, text := probe(other, "/readyz"); code != http.StatusOK {
		t.Errorf("a manager that follows a leader: %d %s", code, text)
	}
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	l.work.Go(func() {
		l.state.mu.Lock()
		defer l.state.mu.Unlock()
		<-released
	})
	testrun.Until(t, "the other manager leads", func() bool { return other.led() != nil })
	if code, text := probe(stuck, "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "locked") {
		t.Errorf("a leader that is stuck: %d %s", code, text)
	}
	release()
	testrun.Until(t, "the former leader stands by", func() bool {
		code, _ := probe(stuck, "/readyz")
		return code == http.StatusOK
	})
}
