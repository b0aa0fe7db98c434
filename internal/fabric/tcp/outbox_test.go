package tcp

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// TestOutboxStream puts frames with bodies of all sizes into an outbox with a small kernel
// buffer, and changes each body after its flush. The stream contains the original bodies, in
// order.
func TestOutboxStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = there.Close() }()
	here := dialed.(*net.TCPConn)
	raw, err := here.SyscallConn()
	if err := errors.Join(err, here.SetWriteBuffer(32<<10), there.(*net.TCPConn).SetReadBuffer(32<<10)); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{}, 1)
	var waiting atomic.Int64
	o := newOutbox(raw, &waiting, func() {
		select {
		case drained <- struct{}{}:
		default:
		}
	})
	var running sync.WaitGroup
	running.Go(o.run)

	rng := rand.New(rand.NewPCG(3, 4))
	var want bytes.Buffer
	var got []byte
	read := make(chan error, 1)
	go func() {
		var err error
		got, err = io.ReadAll(there)
		read <- err
	}()
	lent, stuck := 0, 0
	for range 1000 {
		o.mu.Lock()
		var bodies [][]byte
		for range 1 + rng.IntN(6) {
			body := make([]byte, rng.IntN(2*lendFrom))
			for i := range body {
				body[i] = byte(i) ^ byte(want.Len()>>4)
			}
			o.buf = appendReply(o.buf, statusOK, len(body))
			o.append(body)
			want.Write(appendReply(nil, statusOK, len(body)))
			want.Write(body)
			bodies = append(bodies, body)
		}
		if o.lent > 0 {
			lent++
			if rng.IntN(4) == 0 {
				o.copyBodies()
			}
		}
		o.flush()
		if o.lent != 0 {
			t.Error("something is lent after a flush")
		}
		full := o.pending() > 1<<20
		if n := waiting.Load(); n != int64(o.pending()) {
			t.Fatalf("%d bytes are counted of %d", n, o.pending())
		}
		if o.stuck {
			stuck++
		}
		o.mu.Unlock()
		for _, b := range bodies {
			clear(b) // its owner has it back
		}
		if full {
			<-drained
		}
	}
	for {
		o.mu.Lock()
		left, err := o.pending(), o.err
		o.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			break
		}
		<-drained
	}
	if err := errors.Join(here.Close(), <-read); err != nil {
		t.Fatal(err)
	}
	o.close()
	running.Wait()
	if n := waiting.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	if lent == 0 || stuck == 0 {
		t.Errorf("bodies were lent %d times, the kernel was full %d times", lent, stuck)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes came out of %d, and not the same", len(got), want.Len())
	}
}
