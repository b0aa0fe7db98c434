//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
)

// mapping is a peer's file that is mapped here, once for all connections that have imported its
// region. Guarded by mappings.mu, except memory, which does not change.
type mapping struct {
	id     fileID
	memory []byte
	file   *os.File // nil unless the provider is sparse
	users  int
}

// fileID names a file as long as it is open or mapped, and how.
type fileID struct {
	device, inode uint64
	readOnly      bool
}

// mappings are the peers' regions that a provider has mapped. It is safe for concurrent use.
type mappings struct {
	keepFiles bool // to find holes
	mu        sync.Mutex
	byFile    map[fileID]*mapping
}

// take returns the mapping of at least size bytes of a peer's file. The caller gives it back.
func (s *mappings) take(f *os.File, size int64) (*mapping, error) {
	st, err := checkPeer(f, size)
	if err != nil {
		return nil, err
	}
	id := fileID{st.Dev, st.Ino, isReadOnly(f)}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.byFile[id]
	if m == nil {
		if m, err = s.open(id, f, size); err != nil {
			return nil, err
		}
		s.byFile[id] = m
	}
	if int64(len(m.memory)) < size {
		return nil, errFile // it has grown since it was mapped
	}
	m.users++
	return m, nil
}

func (s *mappings) open(id fileID, f *os.File, size int64) (*mapping, error) {
	m := &mapping{id: id}
	var err error
	if s.keepFiles {
		if m.file, err = duplicate(f); err != nil {
			return nil, fmt.Errorf("peer's file: %w", err)
		}
	}
	prot := protReadWrite
	if id.readOnly {
		prot = unix.PROT_READ
	}
	if m.memory, err = mapPeer(f, size, prot); err != nil {
		return nil, errors.Join(err, m.closeFile())
	}
	return m, nil
}

// give gives a mapping back. The last user unmaps it.
func (s *mappings) give(m *mapping) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.users--; m.users > 0 {
		return nil
	}
	delete(s.byFile, m.id)
	return errors.Join(unmap(m.memory), m.closeFile())
}

func (m *mapping) closeFile() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// NextData implements fabric.HoleFinder.
func (q *queuePair) NextData(_ context.Context, r fabric.Remote, offset int64) (begin, end int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.imports.Adopt()
	i := q.imports.Get(r.Handle)
	switch {
	case i == nil || !i.valid():
		return 0, 0, fabric.ErrBadToken
	case offset < 0 || offset > i.size:
		return 0, 0, fabric.ErrOutOfBounds
	case i.shared.file == nil:
		return offset, i.size, nil
	}
	return nextData(i.shared.file, offset, i.size)
}

// nextData returns the first range of a file at or behind offset that has memory, within its
// first size bytes. Users of a peer's file share its position, which is used for nothing else.
func nextData(f *os.File, offset, size int64) (begin, end int64, err error) {
	fd := int(f.Fd())
	begin, err = unix.Seek(fd, offset, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && begin >= size {
		return size, size, nil
	}
	if err == nil {
		end, err = unix.Seek(fd, begin, unix.SEEK_HOLE)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("holes of the peer's file: %w", err)
	}
	return begin, min(end, size), nil
}
