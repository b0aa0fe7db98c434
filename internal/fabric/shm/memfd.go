//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
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
	huge bool
}

// newShared returns zeroed shared memory of at least size bytes, in huge pages if it is large
// enough and the system has some.
func newShared(name string, size int) (*shared, error) {
	if size >= hugePage {
		rounded := (size + hugePage - 1) &^ (hugePage - 1)
		if s, err := mapNew(name, rounded, unix.MFD_HUGETLB); err == nil {
			s.huge = true
			return s, nil
		}
	}
	page := os.Getpagesize()
	s, err := mapNew(name, (size+page-1)&^(page-1), 0)
	if err == nil && size >= hugePage {
		s.huge = collapse(s.data)
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

// mapPeer maps at least size bytes of a peer's file after it has checked that the file cannot
// shrink.
func mapPeer(f *os.File, size int64, prot int) ([]byte, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, errFile
	}
	st, err := f.Stat()
	if err != nil || size <= 0 || st.Size() < size || int64(int(st.Size())) != st.Size() {
		return nil, errFile
	}
	data, err := mapFile(int(f.Fd()), int(st.Size()), prot)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the peer: %w", st.Size(), err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Blocks*512 >= st.Size() {
		enterHuge(data)
	}
	return data, nil
}

// discard returns the physical memory to the system although peers may keep mappings. Errors
// are ignored.
func (s *shared) discard() {
	_ = unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(s.data)))
}

// Close unmaps the memory on this side; the peers' mappings are independent.
func (s *shared) Close() error { return errors.Join(unmap(s.data), s.file.Close()) }

// words returns mapped memory as 8-byte words. A mapping is page-aligned, and outlives the
// words because their users are inside the queue pair's gate.
func words(b []byte) []uint64 { return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8) }
