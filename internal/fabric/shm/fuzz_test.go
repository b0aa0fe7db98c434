//go:build linux

package shm

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

func FuzzMessages(f *testing.F) {
	f.Add(encodeImport(7, [16]byte{1})[1:])
	f.Add(loan{id: 1, word: 2, generation: 3, size: 4}.encode()[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, token, err := decodeImport(b); err == nil && string(encodeImport(id, token)[1:]) != string(b) {
			t.Error("import changed")
		}
		if l, err := decodeLoan(b); err == nil && string(l.encode()[1:]) != string(b) {
			t.Error("loan changed")
		}
	})
}

// hostileHost is a provider with a listener, and files that a peer sends.
type hostileHost struct {
	provider fabric.Provider
	listener fabric.Listener
	files    []*os.File // generations, rings: as a correct peer has them
}

func newHostileHost(f *testing.F) *hostileHost {
	p, err := Open()
	if err != nil {
		f.Fatal(err)
	}
	l, err := p.Listen("", 4)
	if err != nil {
		f.Fatal(err)
	}
	generations, err := newShared("generations", maxRegions*8)
	if err != nil {
		f.Fatal(err)
	}
	rings, err := newShared("rings", 2*core.ImmRingWords*8)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := errors.Join(p.Close(), generations.Close(), rings.Close()); err != nil {
			f.Error(err)
		}
	})
	return &hostileHost{provider: p, listener: l, files: []*os.File{generations.file, rings.file}}
}

func (h *hostileHost) dial(t *testing.T) *net.UnixConn {
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: h.listener.Addr(), Net: network})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// FuzzGreeting connects and sends anything, with up to three files. Without a valid hello the
// connection is closed, otherwise it is offered to Accept. The listener continues.
func FuzzGreeting(f *testing.F) {
	h := newHostileHost(f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			r, err := h.listener.Accept(context.Background())
			if err != nil {
				return
			}
			_ = r.Reject("not today")
		}
	}()
	f.Cleanup(func() {
		_ = h.listener.Close()
		<-served
	})
	hello := append([]byte{kindHello}, magic...)
	f.Add(hello, uint8(2))
	f.Add(hello, uint8(0))
	f.Add(hello, uint8(3))
	f.Add(append(hello[:9:9], make([]byte, fabric.MaxPrivate+1)...), uint8(2))
	f.Add([]byte{kindImport}, uint8(1))
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, files uint8) {
		c := h.dial(t)
		_ = send(c, b, []*os.File{h.files[0], h.files[1], h.files[1]}[:files%4]...) // may fail, for example if b is too long
		_ = c.CloseWrite()
		for buf := make([]byte, maxMessage); ; {
			if _, _, _, err := receive(c, buf); err != nil {
				break
			}
		}
		if _, err := h.provider.Dial(context.Background(), h.listener.Addr(), nil, 1); !errors.Is(err, fabric.ErrRejected) {
			t.Fatalf("the listener does not answer: %v", err)
		}
	})
}

// FuzzPeer sends a valid hello, then anything on the socket, with up to two files, and writes
// anything into the ring. The queue pair fails, or continues until the peer ends.
func FuzzPeer(f *testing.F) {
	h := newHostileHost(f)
	f.Add([]byte{kindWake}, uint8(0), uint64(1))
	f.Add(encodeImport(7, fabric.Token{1}), uint8(0), uint64(5))
	f.Add(loan{id: 1, word: 2, generation: 3, size: 4096}.encode(), uint8(1), uint64(1<<63))
	f.Add(loan{id: 1}.encode(), uint8(2), uint64(core.ImmEntries+1))
	f.Add([]byte{kindUnknown, 1, 0, 0, 0}, uint8(0), uint64(0))
	f.Add([]byte{kindFailed, 1, 0, 0, 0}, uint8(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, files uint8, mark uint64) {
		rings, err := newShared("rings", 2*core.ImmRingWords*8)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rings.Close() }()
		c := h.dial(t)
		if err := send(c, append([]byte{kindHello}, magic...), h.files[0], rings.file); err != nil {
			t.Fatal(err)
		}
		r, err := h.listener.Accept(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		q, err := r.Accept(nil, fabric.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		words(rings.data)[0] = mark // claims this number of pushed entries
		_ = send(c, b, h.files[:files%3]...)
		_ = c.Close()
		var done [64]fabric.Completion
		for q.Err() == nil {
			for _, d := range done[:q.Poll(done[:])] {
				if d.Op != fabric.OpRecv || d.Err != nil {
					t.Fatalf("completion %+v", d)
				}
			}
			if err := q.Wait(context.Background()); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
				t.Fatal(err)
			}
		}
		if !errors.Is(q.Err(), fabric.ErrDisconnected) {
			t.Errorf("ended with %v", q.Err())
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
