package main

import (
	"log/slog"
	"net"
	"testing"
)

// TestListenOnLoopbacks checks that the default addresses are those of both loopbacks, with other ports.
func TestListenOnLoopbacks(t *testing.T) {
	var f listenFlags
	f.addrs = []string{"127.0.0.1:0", "-[::1]:0"}
	listeners, err := f.listen(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := closeAll(listeners); err != nil {
			t.Error(err)
		}
	}()
	if len(listeners) < 2 {
		t.Skip("this machine has no IPv6")
	}
	for i, want := range []string{"127.0.0.1", "::1"} {
		if host, _, err := net.SplitHostPort(listeners[i].Addr().String()); host != want || err != nil {
			t.Errorf("listener %d: %s, %v", i, host, err)
		}
	}
}
