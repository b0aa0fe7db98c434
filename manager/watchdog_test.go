package manager

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/catalog/catalogtest"
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
	})
}

// electing is a catalog that managers share.
type electing struct{ *catalog.Memory }

func (electing) Shared() bool { return true }

// A leader whose state is locked says so, and another one leads.
func TestStuckLeaderIsReplaced(t *testing.T) {
	store := catalog.NewMemory()
	var all [2]*Manager
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
			testrun.Until(t, "the first manager leads", func() bool { return m.led() != nil })
		}
	}
	stuck, other := all[0], all[1]
	if code, text := probe(other, "/readyz"); code != http.StatusOK {
		t.Errorf("a manager that follows a leader: %d %s", code, text)
	}
	l, released := stuck.led(), make(chan struct{})
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
