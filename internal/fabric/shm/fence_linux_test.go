package shm

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// allocOne returns a region of a size, and its set, which the end of the test closes.
func allocOne(t *testing.T, size int) (*regions, *region) {
	t.Helper()
	set, err := newRegions(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := set.alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return set, r
}

// TestFence fences a region whose peer is in the midst of a copy: the region has its bytes and
// another token, and what the peer copies afterwards reaches other memory. Memory that nobody has
// written takes none afterwards, either.
func TestFence(t *testing.T) {
	for name, size := range map[string]int{"small": 3000, "pages": 64 << 10, "huge pages": 2*hugePage + 5000} {
		t.Run(name, func(t *testing.T) {
			set, r := allocOne(t, size)
			for i := range r.Bytes()[size/2:] {
				r.Bytes()[size/2+i] = byte(i*7 + 1)
			}
			want := bytes.Clone(r.Bytes())
			stranger := &net.UnixConn{} // its process cannot be observed
			l, file, err := set.lend(r.Token(), stranger, fabric.ReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			maps := mappings{byFile: map[fileID]*mapping{}}
			peer, err := maps.importRegion(lent{loan: l, file: file}, set.generations.words)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := errors.Join(maps.give(peer.shared), file.Close()); err != nil {
					t.Error(err)
				}
			}()
			fenced, err := r.Fence()
			if err != nil {
				t.Fatal(err)
			}
			for i := range peer.mapping {
				peer.mapping[i] = 0xee // by a peer that found the region valid before
			}
			if !bytes.Equal(fenced.Bytes(), want) {
				t.Error("the bytes are not those of before")
			}
			if err := peer.access(core.Write, []byte("late"), 0); !errors.Is(err, fabric.ErrBadToken) {
				t.Errorf("a late access: %v", err)
			}
			if _, _, err := set.lend(r.token, stranger, fabric.ReadWrite); !errors.Is(err, fabric.ErrBadToken) || fenced.Token() == r.token {
				t.Errorf("the former token: %v", err)
			}
			if _, err := r.Fence(); !errors.Is(err, fabric.ErrClosed) {
				t.Errorf("fenced twice: %v", err)
			}
		})
	}
}

// TestFenceIsSparse fences a region of which one page was written.
func TestFenceIsSparse(t *testing.T) {
	const size = 1 << 20 // below the size of huge pages, which are populated
	from, err := newShared("redykv-test", size)
	if err != nil {
		t.Fatal(err)
	}
	to, err := newShared("redykv-test", size)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(from.Close(), to.Close()); err != nil {
			t.Error(err)
		}
	}()
	from.data[size-1] = 1
	copyData(to.data, from)
	var st unix.Stat_t
	if err := unix.Fstat(int(to.file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if to.data[size-1] != 1 || st.Blocks*512 > size/4 {
		t.Errorf("%d bytes are used for a copy of one page", st.Blocks*512)
	}
}

// TestLentForReading: what is lent for reading cannot be mapped for writing, also beside another mapping of
// the same file.
func TestLentForReading(t *testing.T) {
	for name, size := range map[string]int{"small": 3000, "huge pages": 2*hugePage + 5000} {
		t.Run(name, func(t *testing.T) {
			set, r := allocOne(t, size)
			maps := mappings{byFile: map[fileID]*mapping{}}
			for _, rights := range []fabric.Rights{fabric.ReadWrite, fabric.ReadOnly} {
				l, file, err := set.lend(r.Token(), &net.UnixConn{}, rights)
				if err != nil {
					t.Fatal(err)
				}
				peer, err := maps.importRegion(lent{loan: l, file: file}, set.generations.words)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := errors.Join(maps.give(peer.shared), file.Close()); err != nil {
						t.Error(err)
					}
				}()
				writable, err := mapFile(int(file.Fd()), len(r.memory.data), protReadWrite)
				if (err == nil) != (rights == fabric.ReadWrite) {
					t.Errorf("rights %d: mapped for writing: %v", rights, err)
				}
				if err == nil {
					if err := unmap(writable); err != nil {
						t.Error(err)
					}
				}
				if err := peer.access(core.Write, []byte("text"), 0); (err == nil) != (rights == fabric.ReadWrite) {
					t.Errorf("rights %d: a write: %v", rights, err)
				}
				var got [4]byte
				if err := peer.access(core.Read, got[:], 0); err != nil || string(got[:]) != "text" {
					t.Errorf("rights %d: read %q, %v", rights, got, err)
				}
			}
		})
	}
}
