package kv

import (
	"testing"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/manifest/manifesttest"
)

// FuzzIndexCopy loads tables that pass the checksums: what is loaded can be used.
func FuzzIndexCopy(f *testing.F) {
	bucket := make([]byte, 4+bucketSize)
	bucket[1], bucket[2+7] = bucketSize, 0x40 // used
	f.Add(append(bucket, bucket...))
	f.Fuzz(func(t *testing.T, in []byte) {
		const bits, tail = 1, 1 << 12
		disk, _ := manifesttest.Object(t, uint32(manifest.IndexChunk), in)
		table, err := loadIndex(disk, &manifest.IndexCopy{Object: "object", Bits: bits, TagShift: bits, Start: hlog.FirstAddress}, tail, nil)
		if err != nil {
			return
		}
		for hash := range uint64(64) {
			_, e := table.find(hash<<10 | hash)
			if e.address() >= tail || e.address()%8 != 0 {
				t.Errorf("entry %#x of hash %d", uint64(e), hash)
			}
			if s, _, err := table.findOrInsert(hash<<10 | hash); err != nil || s.p == nil && !table.crowded() {
				t.Errorf("hash %d: %v", hash, err)
			}
		}
		closeTable(t, table)
	})
}

func closeTable(t *testing.T, table *table) {
	if err := table.free(); err != nil {
		t.Error(err)
	}
}

// FuzzSnapshot restores snapshots that pass the checksums: nothing is written
// outside of what they stand for.
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
