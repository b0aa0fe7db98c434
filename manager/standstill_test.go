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

// A wait for the state's lock, as behind a slow catalog, also counts as a pause: it does not fail
// servers. Deadlines follow a hand clock, so a slow machine lets none of them pass.
func TestManagerWaitsForCatalog(t *testing.T) {
	c := &handClock{now: time.Unix(1_000_000, 0)}
	said := make(chan string, 1000)
	m, err := New(Options{Heartbeat: 20 * time.Millisecond, now: c.read, Logger: slog.New(messages{slog.DiscardHandler, said})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l := m.led()
	due := c.read().Add(time.Hour)
	if err := l.state.register(testVM("a", 1<<20, 1, "http://127.0.0.1:1"), "", due); err != nil {
		t.Fatal(err)
	}
	deadline := func() time.Time {
		l.state.mu.Lock()
		defer l.state.mu.Unlock()
		if v := l.state.vms["a"]; v != nil {
			return v.deadline
		}
		return time.Time{}
	}
	delayed := func() bool {
		for {
			select {
			case what := <-said:
				if what == "manager was delayed: heartbeats and leases get more time" {
					return true
				}
			default:
				return false
			}
		}
	}
	testrun.Until(t, "the manager says that it was delayed", func() bool {
		l.state.mu.Lock()
		time.Sleep(3 * m.opts.Heartbeat) // the length of the wait
		l.state.mu.Unlock()
		return delayed()
	})
	testrun.Until(t, "the server gets more time", func() bool { return deadline().After(due) })
	c.advance(time.Hour)
	l.expireAt(due)
	if deadline().IsZero() {
		t.Error("a server is held to what nobody could hear")
	}
	c.advance(24 * time.Hour)
	l.expireAt(c.read())
	if !deadline().IsZero() {
		t.Error("a server that is silent for a day is known")
	}
}
