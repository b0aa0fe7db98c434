//go:build linux

package shm

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/testrun"
)

// TestMapPeerRefuses offers files that the peer could truncate under a mapping.
func TestMapPeerRefuses(t *testing.T) {
	plain, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "unsealed")
	defer func() { _ = unsealed.Close() }()
	for _, f := range []*os.File{plain, unsealed} {
		if err := f.Truncate(1 << 20); err != nil {
			t.Fatal(err)
		}
		if _, err := mapPeer(f, 4096, protReadWrite); !errors.Is(err, errFile) {
			t.Errorf("%s: %v", f.Name(), err)
		}
	}
	s, err := newShared("sealed", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, size := range []int64{0, -1, 4097, 1 << 62} {
		if _, err := mapPeer(s.file, size, protReadWrite); !errors.Is(err, errFile) {
			t.Errorf("%d bytes of 4096: %v", size, err)
		}
	}
}

// TestGenerationsAreReadOnly checks that a peer cannot change the generations that it maps.
func TestGenerationsAreReadOnly(t *testing.T) {
	l, err := newGenerations()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.memory.Close() }()
	if _, err := mapPeer(l.memory.file, 4096, protReadWrite); err == nil {
		t.Error("generations can be mapped for writing")
	}
	m, err := mapPeer(l.memory.file, 4096, unix.PROT_READ)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(m, protReadWrite); err == nil {
		t.Error("generations can be made writable")
	}
	if err := unmap(m); err != nil {
		t.Fatal(err)
	}
}

// TestDeafPeer repeatedly wakes a process that does not read its socket. The owner of the
// queue pair is not blocked, and an import ends with its context.
func TestDeafPeer(t *testing.T) {
	host, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	l, err := host.Listen("", 1)
	if err != nil {
		t.Fatal(err)
	}
	deaf, err := net.DialUnix(network, nil, &net.UnixAddr{Name: l.Addr(), Net: network})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	generations, err := newGenerations()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = generations.memory.Close() }()
	rings, err := newShared("rings", 2*core.ImmRingWords*8)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rings.Close() }()
	if err := send(deaf, append([]byte{kindHello}, magic...), generations.memory.file, rings.file); err != nil {
		t.Fatal(err)
	}
	r, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q, err := r.Accept(nil, fabric.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		for range 10_000 { // more than a socket's buffer holds
			q.(*queuePair).wakePeer()
		}
	}()
	select {
	case <-woken:
	case <-time.After(testrun.Patience(20 * time.Second)):
		t.Error("a peer that does not read blocks the owner")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	imported := make(chan error, 1)
	go func() {
		_, err := q.Import(ctx, fabric.Token{})
		imported <- err
	}()
	if err := testrun.Receive(t, "the import ends", imported); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("import: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	<-woken
}

// A peer that keeps its mapping of a closed region does not keep the memory allocated.
func TestClosedRegionGivesMemoryBack(t *testing.T) {
	l, err := newGenerations()
	if err != nil {
		t.Fatal(err)
	}
	s := &regions{generations: l, byToken: map[fabric.Token]*region{}}
	defer func() { _ = s.Close() }()
	const size = 1 << 20
	r, err := s.alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := mapPeer(r.memory.file, size, protReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapping) }()
	for i := range r.Bytes() {
		r.Bytes()[i] = 1
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := mem.ResidentOf(mapping); err != nil || n > 0 {
		t.Errorf("%d bytes resident of a closed region, %v", n, err)
	}
}

// TestMalformedIsCounted sends invalid messages at connect, after it, and in the ring.
func TestMalformedIsCounted(t *testing.T) {
	host, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	l, err := host.Listen("", 1)
	if err != nil {
		t.Fatal(err)
	}
	generations, err := newGenerations()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = generations.memory.Close() }()
	plain, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	hello := append([]byte{kindHello}, magic...)
	malformed := host.(interface{ Malformed() uint64 }).Malformed
	before := malformed()
	for name, misbehave := range map[string]func(c *net.UnixConn, rings *shared) error{
		"a stranger":        func(c *net.UnixConn, _ *shared) error { return send(c, []byte("hello?")) },
		"hello with a file": func(c *net.UnixConn, rings *shared) error { return send(c, hello, rings.file) },
		"a plain file":      func(c *net.UnixConn, _ *shared) error { return send(c, hello, generations.memory.file, plain) },
		"a strange message": func(c *net.UnixConn, rings *shared) error {
			return errors.Join(send(c, hello, generations.memory.file, rings.file), send(c, []byte{99}))
		},
		"an impossible mark": func(c *net.UnixConn, rings *shared) error {
			words(rings.data)[0] = 1 << 40 // before the other side reads it
			return send(c, hello, generations.memory.file, rings.file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			rings, err := newShared("rings", 2*core.ImmRingWords*8)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rings.Close() }()
			c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: l.Addr(), Net: network})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if err := misbehave(c, rings); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			counted := before
			go func() { // Accept does not return a rejected peer
				for malformed() == counted && ctx.Err() == nil {
					time.Sleep(100 * time.Microsecond)
				}
				cancel()
			}()
			r, err := l.Accept(ctx)
			if err == nil {
				if q, err := r.Accept(nil, fabric.ReadWrite); err == nil {
					for end := time.Now().Add(testrun.Patience(testrun.Bound)); q.Err() == nil; time.Sleep(100 * time.Microsecond) {
						q.Poll(make([]fabric.Completion, 1))
						if time.Now().After(end) {
							t.Fatal("the connection of a peer that misbehaves does not end")
						}
					}
					_ = q.Close()
				}
			}
			if n := malformed() - before; n != 1 {
				t.Errorf("counted %d times", n)
			}
			before = malformed()
		})
	}
}
