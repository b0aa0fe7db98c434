package server

import (
	"bytes"
	"testing"

	memfabric "github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/fabric/verbs"
	"github.com/redykv/redykv/internal/mem"
)

// A sparse server may lend more memory than the machine has. It has memory for what was written,
// and so does the server to which a region moves; what the target held before is gone.
func TestSparse(t *testing.T) {
	const regions, size, page, little = 4, 256 << 20, 4096, 64 << 20
	for _, transport := range transporttest.Names(t) {
		t.Run(transport, func(t *testing.T) {
			if transport == verbs.Name {
				t.Skip("an adapter without page faults has all memory of an imported region resident")
			}
			before := mem.Resident()
			taken := func(when string) {
				if n := mem.Resident() - before; n > little {
					t.Errorf("%d more bytes of memory in use %s", n, when)
				}
			}
			from, fromClient := newServer(t, Options{Memory: 1 << 50, Transport: transport, Sparse: true})
			to, toClient := newServer(t, Options{Memory: 1 << 50, Transport: transport, Sparse: true})
			source, target := lendBig(t, fromClient, "old", regions, size), lendBig(t, toClient, "new", regions, size)
			taken("before anything is written")
			written := []int{5, pullChunk * 7, size/2 + 12345, size - 1}
			for _, at := range written {
				memoryOf(from, "old", 1)[at] = byte(at | 1)
			}
			for at := range 3 * page {
				memoryOf(to, "new", 1)[size/4+at] = 1 // of an earlier pull, say
			}
			m := pullFrom(source, target, "new", size)
			m.Regions = m.Regions[:2]
			if _, err := pullAll(t.Context(), toClient, m); err != nil {
				t.Fatal(err)
			}
			// Over mem a pull reads all of the source, for which the system may allocate memory.
			if transport != memfabric.Name {
				taken("after two regions of which four pages are written have moved")
			}
			for i := range 2 {
				n, err := mem.ResidentOf(memoryOf(to, "new", i))
				if err != nil || n > int64(len(written))*pullChunk {
					t.Errorf("%d bytes of memory in use of the target's region %d, %v", n, i, err)
				}
			}
			got := memoryOf(to, "new", 1)
			for _, at := range written {
				if got[at] != byte(at|1) {
					t.Errorf("byte %d is %d", at, got[at])
				}
			}
			if !bytes.Equal(got[size/4:][:3*page], make([]byte, 3*page)) {
				t.Error("what the target held before is still there")
			}
		})
	}
}
