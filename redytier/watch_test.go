package redytier

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Whoever reads the log of a program with a cache learns where its memory goes, in
// the order in which it happens, whether or not the program listens.
func TestEventsAreLogged(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	w := newWatcher(&Cache{log: log})
	w.running.Go(func() { w.tell(nil) })
	w.report(Event{Kind: VMReclaimed, VM: "vm-1", To: 4096, Deadline: time.Unix(0, 0).UTC()})
	w.report(Event{Kind: VMLeft, VM: "vm-1", To: 4096})
	w.report(Event{Kind: VMLost, VM: "vm-2", To: 4096})
	w.report(Event{Kind: Restored, VM: "vm-3", From: 4096, To: 8192, DataLost: true})
	w.report(Event{Kind: CacheDeleted, To: 8192})
	w.stop()
	w.report(Event{Kind: VMLeft, VM: "vm-9"}) // nobody is told any more
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	want := []string{
		`level=INFO msg="VM is reclaimed: its regions move" from=0 to=4096 vm=vm-1 deadline=1970-01-01T00:00:00.000Z`,
		`level=INFO msg="regions have moved away from a VM" from=0 to=4096 vm=vm-1`,
		`level=INFO msg="regions have memory again" from=4096 to=8192 zeros=true`,
		`level=WARN msg="the manager does not know the cache any more"`,
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), text.String())
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, want[i]) {
			t.Errorf("line %q, want %q", line, want[i])
		}
	}
}
