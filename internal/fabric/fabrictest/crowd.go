package fabrictest

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// RunCrowd opens 500 connections that send nothing to a listener, and checks that a later
// client is served before the silent ones time out.
func RunCrowd(t *testing.T, open Open, network string) {
	l := connect(t, open, 4)
	var silent []net.Conn
	for range 500 {
		c, err := new(net.Dialer).DialContext(t.Context(), network, l.listener.Addr())
		check(t, err)
		t.Cleanup(func() { _ = c.Close() })
		silent = append(silent, c)
	}
	there, here := l.dial(4)
	check(t, errors.Join(here.Close(), there.Close()))
	for i, c := range silent[len(silent)-200:] {
		check(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("of the latest 200 the one of number %d is gone: %v", i, err)
		}
	}
}
