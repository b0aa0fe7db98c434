package shm

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMapPeerRefuses offers files that could be pulled from under a mapping.
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

// TestLeasesAreReadOnly checks that a peer cannot revoke what it was shown.
func TestLeasesAreReadOnly(t *testing.T) {
	l, err := newLeases()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.memory.Close() }()
	if _, err := mapPeer(l.memory.file, 4096, protReadWrite); err == nil {
		t.Error("leases can be mapped for writing")
	}
	m, err := mapPeer(l.memory.file, 4096, unix.PROT_READ)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(m, protReadWrite); err == nil {
		t.Error("leases can be made writable")
	}
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
}

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
