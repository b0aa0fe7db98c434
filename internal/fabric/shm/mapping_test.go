//go:build linux

package shm

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
)

// connected returns a queue pair of a new sparse provider to another one.
func connected(t *testing.T) (server, client *provider, dial func() *queuePair) {
	t.Helper()
	var ends [2]*provider
	for i := range ends {
		p, err := OpenSparse()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = p.(*provider)
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	l, err := ends[0].Listen("", 4)
	if err != nil {
		t.Fatal(err)
	}
	return ends[0], ends[1], func() *queuePair {
		go func() {
			if r, err := l.Accept(t.Context()); err == nil {
				_, _ = r.Accept(nil, fabric.ReadWrite) // Dial reports a failure
			}
		}()
		q, err := ends[1].Dial(t.Context(), l.Addr(), nil, 4)
		if err != nil {
			t.Fatal(err)
		}
		return q.(*queuePair)
	}
}

// A file that its peer has made longer since it was mapped is not taken for longer than it was.
func TestGrownFile(t *testing.T) {
	fd, err := unix.MemfdCreate("grows", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "grows")
	defer func() { _ = f.Close() }()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	s := &mappings{byFile: make(map[fileID]*mapping)}
	m, err := s.take(f, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	if _, err := s.take(f, 8192); !errors.Is(err, errFile) {
		t.Errorf("8192 bytes of a mapping of %d: %v", len(m.memory), err)
	}
	if again, err := s.take(f, 4096); err != nil || again != m {
		t.Errorf("as much as it was: %v", err)
	}
	if err := errors.Join(s.give(m), s.give(m)); err != nil || len(s.byFile) > 0 {
		t.Errorf("%v, %d mappings are left", err, len(s.byFile))
	}
}

// Connections share the mapping of a region; the last one that releases it unmaps it.
func TestSharedMapping(t *testing.T) {
	server, client, dial := connected(t)
	region, err := server.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	a, b := dial(), dial()
	inA, err := a.Import(t.Context(), region.Token())
	if err != nil {
		t.Fatal(err)
	}
	inB, err := b.Import(t.Context(), region.Token())
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Import(t.Context(), region.Token())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(client.mappings.byFile); n != 1 {
		t.Errorf("%d mappings of one region", n)
	}
	a.Release(inA)
	b.Release(again)
	if n := len(client.mappings.byFile); n != 1 {
		t.Errorf("%d mappings while one connection has the region", n)
	}
	write(t, b, inB, 7)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := len(client.mappings.byFile); n != 0 {
		t.Errorf("%d mappings of a region that nobody has imported", n)
	}
	if region.Bytes()[7] != 1 {
		t.Error("the write did not arrive")
	}
}

// write writes one byte, 1, at offset.
func write(t *testing.T, q *queuePair, r fabric.Remote, offset int64) {
	t.Helper()
	if err := q.Write([]byte{1}, r, offset, 0); err != nil {
		t.Fatal(err)
	}
	if err := q.Submit(); err != nil {
		t.Fatal(err)
	}
	var done [1]fabric.Completion
	for q.Poll(done[:]) == 0 {
		if err := q.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if done[0].Err != nil {
		t.Fatal(done[0].Err)
	}
}

// A peer finds the parts of a region that have memory.
func TestNextData(t *testing.T) {
	server, _, dial := connected(t)
	const size = 64 << 20
	region, err := server.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	q := dial()
	r, err := q.Import(t.Context(), region.Token())
	if err != nil {
		t.Fatal(err)
	}
	next := func(from, begin, end int64) {
		t.Helper()
		b, e, err := q.NextData(t.Context(), r, from)
		if err != nil || b != begin || e != end {
			t.Errorf("behind %d: data in [%d, %d), %v, want [%d, %d)", from, b, e, err, begin, end)
		}
	}
	next(0, size, size)
	write(t, q, r, 5<<20+1)
	write(t, q, r, size-1)
	next(0, 5<<20, 5<<20+4096)
	next(5<<20+4000, 5<<20+4000, 5<<20+4096)
	next(5<<20+4096, size-4096, size)
	next(size, size, size)
	if err := region.Discard(0, 6<<20); err != nil {
		t.Fatal(err)
	}
	next(0, size-4096, size)
	if _, _, err := q.NextData(t.Context(), r, size+1); err == nil {
		t.Error("data behind the end")
	}
	if err := region.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.NextData(t.Context(), r, 0); err == nil {
		t.Error("data of a closed region")
	}
}
