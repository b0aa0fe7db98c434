package index

import (
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/manifest/manifesttest"
)

// TestCopy has a table loaded as it was copied.
func TestCopy(t *testing.T) {
	const bits, keys, tail = 4, 300, 1 << 20
	disk := device.NewMemory()
	table, err := New(bits, bits, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(keys) {
		p, e, err := table.FindOrInsert(oneHash.Word.Of(n))
		if err != nil {
			t.Fatal(err)
		}
		p.Store(e.WithAddress(int64(64 + 8*n)))
	}
	w, err := manifest.CreateObject(t.Context(), disk, "object", manifest.IndexChunk)
	if err == nil {
		err = table.Copy(t.Context(), w)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(disk, &manifest.IndexCopy{Object: "object", Bits: bits, TagShift: bits}, tail, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if table.Overflow() == 0 || loaded.Overflow() != table.Overflow() {
		t.Errorf("%d overflow buckets, copied from %d", loaded.Overflow(), table.Overflow())
	}
	for n := range uint64(keys) {
		_, want := table.Find(oneHash.Word.Of(n))
		if _, got := loaded.Find(oneHash.Word.Of(n)); got != want || want.Address() == 0 {
			t.Errorf("entry %x of key %d, copied from %x", got, n, want)
		}
	}
	closeTable(t, loaded)
	if _, err := Load(disk, &manifest.IndexCopy{Object: "object", Bits: bits, TagShift: bits}, 64, nil, nil); err == nil {
		t.Error("entries behind the tail were loaded")
	}
	closeTable(t, table)
}

// FuzzCopy loads tables that pass the checksums: what is loaded can be used.
func FuzzCopy(f *testing.F) {
	bucket := make([]byte, 4+BucketSize)
	bucket[1], bucket[2+7] = BucketSize, 0x40 // used
	f.Add(append(bucket, bucket...))
	f.Fuzz(func(t *testing.T, in []byte) {
		const bits, tail = 1, 1 << 12
		disk, _ := manifesttest.Object(t, uint32(manifest.IndexChunk), in)
		table, err := Load(disk, &manifest.IndexCopy{Object: "object", Bits: bits, TagShift: bits, Start: hlog.FirstAddress}, tail, nil, nil)
		if err != nil {
			return
		}
		for hash := range uint64(64) {
			_, e := table.Find(hash<<10 | hash)
			if e.Address() >= tail || e.Address()%8 != 0 {
				t.Errorf("entry %#x of hash %d", uint64(e), hash)
			}
			if s, _, err := table.FindOrInsert(hash<<10 | hash); err != nil || s.None() && !table.Crowded() {
				t.Errorf("hash %d: %v", hash, err)
			}
		}
		closeTable(t, table)
	})
}

func closeTable(t *testing.T, table *Table) {
	if err := table.Free(); err != nil {
		t.Error(err)
	}
}
