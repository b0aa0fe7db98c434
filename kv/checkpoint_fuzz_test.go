package kv

import (
	"testing"

	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/manifest/manifesttest"
)

// FuzzSnapshot restores snapshots with valid checksums: nothing is written outside of their
// part of the log.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte{8, 3, 1, 2, 3, 40, 1, 7})
	f.Fuzz(func(t *testing.T, in []byte) {
		const from, to = 16, 100
		object, _ := manifesttest.Object(t, uint32(manifest.LogChunk), in)
		if err := object.Start(from); err != nil {
			t.Fatal(err)
		}
		s := manifest.LogPart{Object: "object", From: from, To: to}
		verified := s.Verify(object)
		restored, err := restoreSnapshots(object, []manifest.LogPart{s}, from)
		if (verified == nil) != (err == nil) || restored > to-from {
			t.Errorf("verified: %v, restored %d bytes: %v", verified, restored, err)
		}
	})
}
