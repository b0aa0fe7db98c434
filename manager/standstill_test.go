package manager

import (
	"context"
	"testing"
	"time"
)

// What nobody could hear, because the manager itself stood still, is not held against
// servers. What they say of their own end is.
func TestManagerStandsStill(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
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
		if err := m.catalog.register(testVM(id, 1<<20, 1, "http://127.0.0.1:1"), c.read().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.reclaim("leaves", c.read().Add(30*time.Minute), "told to"); err != nil {
		t.Fatal(err)
	}
	known := func(want ...string) {
		t.Helper()
		m.catalog.mu.Lock()
		defer m.catalog.mu.Unlock()
		for _, id := range want {
			if m.catalog.vms[id] == nil {
				t.Errorf("%s is gone", id)
			}
		}
		if len(m.catalog.vms) != len(want) {
			t.Errorf("%d VMs, want %v", len(m.catalog.vms), want)
		}
	}
	now := c.advance(50 * time.Second)
	m.catalog.postpone(30 * time.Minute)
	m.expire(now.Add(29 * time.Minute))
	known("stays", "leaves")
	m.expire(now.Add(30 * time.Minute))
	known("stays")
	m.expire(now.Add(31 * time.Minute))
	known()
}
