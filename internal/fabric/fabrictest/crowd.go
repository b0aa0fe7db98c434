package fabrictest

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// RunCrowd has 500 sockets of a network connect to a listener and say nothing. A client
// that comes after them is served while most of the latest are still there: it did not
// wait until they were given up.
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
