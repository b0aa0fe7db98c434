package smb

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// lateConn is a connection on which that many deadlines pass before data arrives.
type lateConn struct {
	net.Conn
	late int
}

func (c *lateConn) Read(p []byte) (int, error) {
	if c.late--; c.late >= 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return copy(p, "x"), nil
}

func (c *lateConn) SetReadDeadline(time.Time) error { return nil }

// TestPatience: a server is given up when all portions of the timeout have passed with
// requests pending, however late each was noticed, and not before.
func TestPatience(t *testing.T) {
	for _, tc := range []struct {
		pending bool
		late    int
		want    error
	}{
		{true, 0, nil}, {true, portions - 1, nil}, {true, portions, os.ErrDeadlineExceeded}, {false, 1, nil},
	} {
		var told, again error
		c := &watchedConn{Conn: &lateConn{late: tc.late}, patience: time.Hour}
		c.notifyBreak(func(err error) {
			told = err
			if c.broken.Load() {
				t.Error("the connection is replaced before its break is known")
			}
		})
		if tc.pending {
			c.begin()
		}
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, tc.want) || !errors.Is(told, tc.want) || c.broken.Load() != (tc.want != nil) {
			t.Errorf("%+v: %v, told %v", tc, err, told)
		}
		if c.notifyBreak(func(err error) { again = err }); (again != nil) != (tc.want != nil) {
			t.Errorf("%+v: told %v afterwards", tc, again)
		}
	}
}
