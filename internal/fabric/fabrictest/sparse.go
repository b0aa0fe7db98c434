package fabrictest

import (
	"bytes"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/mem"
)

// testDiscard discards parts of a region, aligned to pages or not.
func testDiscard(t *testing.T, open Open) {
	const size = 5*mem.HugePage/2 + 1234
	l := connect(t, open, 4)
	r, remote := region(t, l.server, l.here, size)
	want := bytes.Repeat([]byte{0xab}, size)
	write(t, l.here, want, remote, 0)
	for _, c := range [][2]int64{{0, 0}, {10, 20}, {4000, 200}, {8192, 4096}, {20000, 30000}, {mem.HugePage - 7, 9}, {mem.HugePage / 2, mem.HugePage}, {size - 5000, 5000}} {
		check(t, r.Discard(c[0], c[1]))
		clear(want[c[0]:][:c[1]])
		if !bytes.Equal(r.Bytes(), want) {
			t.Fatalf("%d bytes at %d discarded: wrong bytes", c[1], c[0])
		}
	}
	got := make([]byte, size)
	read(t, l.here, got, remote, 0)
	if !bytes.Equal(got, want) {
		t.Error("the peer sees other bytes")
	}
	wantError(t, r.Discard(size-10, 11), fabric.ErrOutOfBounds, "discard")
	wantError(t, r.Discard(-1, 1), fabric.ErrOutOfBounds, "discard")
}

// RunSparse checks that regions of a provider from open have memory for what is written only.
func RunSparse(t *testing.T, open Open) {
	const size, writes, page = 1 << 30, 16, 4096
	l := connect(t, open, 4)
	r, remote := region(t, l.server, l.here, size)
	for i := range int64(writes) {
		write(t, l.here, []byte{byte(i + 1)}, remote, i*(size/writes)+i)
	}
	n, err := mem.ResidentOf(r.Bytes())
	check(t, err)
	if n >= 0 && n != writes*page {
		t.Errorf("a region of %d bytes has %d bytes of memory after %d writes, want %d", size, n, writes, writes*page)
	}
	var got [1]byte
	for i := range int64(writes) {
		if read(t, l.here, got[:], remote, i*(size/writes)+i); got[0] != byte(i+1) {
			t.Errorf("byte %d, want %d", got[0], i+1)
		}
	}
	testNextData(t, l.here, remote, writes, size)
	check(t, r.Discard(0, size))
	if n, err = mem.ResidentOf(r.Bytes()); err != nil || n > 0 {
		t.Errorf("a discarded region has %d bytes of memory, %v", n, err)
	}
	if read(t, l.here, got[:], remote, 0); got[0] != 0 {
		t.Errorf("byte %d of a discarded region", got[0])
	}
}

// testNextData checks that a queue pair which finds holes finds the pages of RunSparse's writes.
func testNextData(t *testing.T, q fabric.QueuePair, r fabric.Remote, writes, size int64) {
	t.Helper()
	holes, ok := q.(fabric.HoleFinder)
	if !ok {
		return
	}
	at, found := int64(0), int64(0)
	for at < size {
		begin, end, err := holes.NextData(t.Context(), r, at)
		check(t, err)
		if begin < at || end > size || begin >= end && begin < size {
			t.Fatalf("data behind %d in [%d, %d)", at, begin, end)
		}
		for ; found < writes && found*(size/writes)+found < end; found++ {
			if w := found*(size/writes) + found; w < begin {
				t.Fatalf("data behind %d in [%d, %d): %d was written", at, begin, end, w)
			}
		}
		at = max(end, begin)
	}
	if found != writes {
		t.Errorf("%d of %d writes found", found, writes)
	}
	_, _, err := holes.NextData(t.Context(), r, size+1)
	wantError(t, err, fabric.ErrOutOfBounds, "data behind the end")
}
