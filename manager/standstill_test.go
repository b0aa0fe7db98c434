package manager

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// Silence that a pause of the manager itself explains does not fail servers. Their
// announced deadlines still hold.
func TestManagerStandsStill(t *testing.T) {
	c := &handClock{now: time.Unix(1_000_000, 0)}
	m, err := New(Options{Heartbeat: time.Hour, now: c.read, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, id := range []string{"stays", "leaves"} {
		if err := m.led().state.register(testVM(id, 1<<20, 1, "http://127.0.0.1:1"), "", c.read().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.led().reclaim("leaves", 0, c.read().Add(30*time.Minute), "told to"); err != nil {
		t.Fatal(err)
	}
	known := func(want ...string) {
		t.Helper()
		m.led().state.mu.Lock()
		defer m.led().state.mu.Unlock()
		for _, id := range want {
			if m.led().state.vms[id] == nil {
				t.Errorf("%s is gone", id)
			}
		}
		if len(m.led().state.vms) != len(want) {
			t.Errorf("%d VMs, want %v", len(m.led().state.vms), want)
		}
	}
	now := c.advance(50 * time.Second)
	m.led().state.postpone(30 * time.Minute)
	m.led().expireAt(now.Add(29 * time.Minute))
	known("stays", "leaves")
	m.led().expireAt(now.Add(30 * time.Minute))
	known("stays")
	m.led().expireAt(now.Add(31 * time.Minute))
	known()
}

// messages is a handler that forwards log messages.
type messages struct {
	slog.Handler
	said chan<- string
}

func (m messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m messages) Handle(_ context.Context, r slog.Record) error {
	m.said <- r.Message
	return nil
}

// A wait for the catalog also counts as a pause: a slow store does not fail servers.
func TestManagerWaitsForCatalog(t *testing.T) {
	said := make(chan string, 1000)
	m, err := New(Options{Heartbeat: 20 * time.Millisecond, Logger: slog.New(messages{slog.DiscardHandler, said})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := m.led().state.register(testVM("a", 1<<20, 1, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	m.led().state.mu.Lock()
	due := time.Now().Add(300 * time.Millisecond)
	m.led().state.vms["a"].deadline = due
	<-time.After(time.Until(due) + 200*time.Millisecond)
	m.led().state.mu.Unlock()
	for {
		what := testrun.Receive(t, "the manager says that it was delayed", said)
		if what == "manager was delayed: heartbeats and leases get more time" {
			return
		}
		if what == "VM failed" {
			t.Fatal("a server is held to what nobody could hear")
		}
	}
}
