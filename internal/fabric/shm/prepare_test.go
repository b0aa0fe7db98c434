//go:build linux

package shm

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/testrun"
)

// populated returns the physical memory of a region in bytes.
func populated(t *testing.T, r *region) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(r.memory.file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// hasHugePages reports whether collapse works here.
func hasHugePages(t *testing.T) bool {
	t.Helper()
	s, err := newShared("redykv-test", hugePage)
	if err != nil {
		t.Fatal(err)
	}
	huge := collapse(s.data)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return huge
}

// Regions are prepared in the background, several at a time; closing one waits for nothing but
// the piece that is being prepared.
func TestPrepare(t *testing.T) {
	if !hasHugePages(t) {
		t.Skip("no huge pages for memory files here")
	}
	s, err := newRegions(false)
	if err != nil {
		t.Fatal(err)
	}
	var all [4]*region
	for i := range all {
		if all[i], err = s.alloc(2*core.PreparePiece + 12345); err != nil {
			t.Fatal(err)
		}
		all[i].Bytes()[i] = 1 // beside the preparation
	}
	if err := all[1].Close(); err != nil {
		t.Error(err)
	}
	deadline := time.Now().Add(testrun.Patience(30 * time.Second))
	for i, r := range all {
		for i != 1 && populated(t, r) < 2*core.PreparePiece {
			if time.Now().After(deadline) {
				t.Fatalf("region %d has %d bytes of memory, want %d", i, populated(t, r), 2*core.PreparePiece)
			}
			time.Sleep(time.Millisecond)
		}
		if i != 1 && r.Bytes()[i] != 1 {
			t.Errorf("region %d lost a byte", i)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Regions are closed while others are made and prepared.
func TestPrepareAndClose(t *testing.T) {
	s, err := newRegions(false)
	if err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for range 20 {
				r, err := s.alloc(2 * core.PreparePiece)
				if err == nil {
					r.Bytes()[0] = 1
					err = r.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	others.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
