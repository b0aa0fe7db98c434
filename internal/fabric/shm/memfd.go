//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

const (
	hugePage = 2 << 20
	// sealed is the seals that a file must have so that it cannot shrink: an access beyond
	// a file's end is a SIGBUS.
	sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
)

// errFile is returned for a peer's descriptor that is not safe to map.
var errFile = errors.New("peer's file is not a sealed memory file of the stated size")

// shared is memory in a file that other processes map as well.
type shared struct {
	file *os.File
	data []byte // the mapping, whole pages
	huge bool   // the file is of reserved huge pages

	preparation core.Preparation
}

// newShared returns zeroed shared memory of at least size bytes. Its physical memory is
// allocated when it is first accessed.
func newShared(name string, size int) (*shared, error) {
	page := os.Getpagesize()
	return mapNew(name, (size+page-1)&^(page-1), 0)
}

// newHuge is newShared in huge pages, if the administrator has reserved enough for it.
func newHuge(name string, size int) (*shared, error) {
	rounded := (size + hugePage - 1) &^ (hugePage - 1)
	s, err := mapNew(name, rounded, unix.MFD_HUGETLB)
	if err == nil {
		s.huge = true
	}
	return s, err
}

func mapNew(name string, size, flags int) (*shared, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = f.Truncate(int64(size)); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, sealed)
	}
	var data []byte
	if err == nil {
		data, err = mapFile(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memory file of %d bytes: %w", size, err), f.Close())
	}
	return &shared{file: f, data: data}, nil
}

// checkPeer returns the state of a peer's file of at least size bytes after it has checked that
// the file cannot shrink.
func checkPeer(f *os.File, size int64) (st unix.Stat_t, err error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return st, errFile
	}
	err = unix.Fstat(int(f.Fd()), &st)
	if err != nil || size <= 0 || st.Size < size || int64(int(st.Size)) != st.Size {
		return st, errFile
	}
	return st, nil
}

// mapPeer maps at least size bytes of a peer's file that checkPeer accepts.
func mapPeer(f *os.File, size int64, prot int) ([]byte, error) {
	st, err := checkPeer(f, size)
	if err != nil {
		return nil, err
	}
	data, err := mapFile(int(f.Fd()), int(st.Size), prot)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the peer: %w", st.Size, err)
	}
	if st.Blocks*512 >= st.Size {
		enterHuge(data)
	}
	return data, nil
}

// discard returns the physical memory of some pages to the system although peers may keep
// mappings. They read as zeros afterwards.
func (s *shared) discard(offset, n int64) error {
	return unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, n)
}

// copyData copies the first bytes of a file into as much zeroed memory. Parts that nobody has
// written take no memory in either.
func copyData(to []byte, from *shared) {
	for at, size := int64(0), int64(len(to)); at < size; {
		begin, end, err := nextData(from.file, at, size)
		if err != nil { // the file system does not tell
			begin, end = at, size
		}
		copy(to[begin:end], from.data[begin:end])
		at = end
	}
}

// Close unmaps the memory on this side; the peers' mappings are independent.
func (s *shared) Close() error { return errors.Join(unmap(s.data), s.file.Close()) }

// open returns another descriptor of the file. Without the right to write, its bytes cannot be mapped
// for writing.
func (s *shared) open(rights fabric.Rights) (*os.File, error) {
	if rights == fabric.ReadOnly {
		return os.Open(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()))
	}
	return duplicate(s.file)
}

// duplicate returns another descriptor of the same open file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// isReadOnly reports whether a file cannot be mapped for writing.
func isReadOnly(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY
}

// words returns mapped memory as 8-byte words. A mapping is page-aligned, and outlives the
// words because their users are inside the queue pair's gate.
func words(b []byte) []uint64 { return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8) }
