//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

// mostWaiting is the most bytes that may wait for a peer that does not read. A correct peer
// always reads.
const mostWaiting = 16 << 20

// control is the TCP connection beside a queue pair. send is safe for concurrent use and never
// blocks: a goroutine writes.
type control struct {
	conn *net.TCPConn

	mu      sync.Mutex
	waiting []byte
	over    bool
	news    chan struct{} // frames wait; closed by close
}

func newControl(conn *net.TCPConn) *control {
	return &control{conn: conn, news: make(chan struct{}, 1)}
}

// send passes a frame to the writer. After the connection has ended it does nothing.
func (c *control) send(f wire.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if len(c.waiting) > mostWaiting {
		_ = c.conn.Close() // ends the reader and the queue pair
		return
	}
	c.waiting = f.Append(c.waiting)
	select {
	case c.news <- struct{}{}:
	default: // the writer is notified already
	}
}

// write writes frames, until close.
func (c *control) write() {
	var batch []byte
	for range c.news {
		c.mu.Lock()
		batch, c.waiting = c.waiting, batch[:0]
		c.mu.Unlock()
		if _, err := c.conn.Write(batch); err != nil {
			_ = c.conn.Close() // as above
		}
	}
}

// close ends write.
func (c *control) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		close(c.news)
	}
}

// readFrame waits for a frame.
func readFrame(conn *net.TCPConn) (wire.Frame, error) {
	var b [wire.FrameSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return wire.Frame{}, err
	}
	return wire.DecodeFrame(b[:])
}

// errReady is returned when a dialer's first frame is not Ready.
var errReady = errors.New("the peer's first frame is not Ready")

// awaitReady waits for the dialer's first frame.
func awaitReady(conn *net.TCPConn) error {
	f, err := readFrame(conn)
	if err == nil && f.Kind != wire.Ready {
		err = errReady
	}
	return err
}
