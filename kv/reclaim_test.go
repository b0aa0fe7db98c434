package kv_test

import (
	"context"
	"encoding/binary"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// diskUsage returns the disk space of a directory, as du reports it, without its journal, which
// is of a fixed size.
func diskUsage(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() == "JOURNAL" {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestCompactionReturnsDiskSpace overwrites the same keys many times on an SSD tier with small
// segments, compacts, and measures the disk usage.
func TestCompactionReturnsDiskSpace(t *testing.T) {
	for _, method := range []kv.CompactMethod{kv.CompactByLookup, kv.CompactByScan} {
		t.Run(method.String(), func(t *testing.T) {
			dir := t.TempDir()
			openStore := func() *kv.Store {
				ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10})
				if err != nil {
					t.Fatal(err)
				}
				st, err := kv.Open(kv.Options{
					Device: ssd, KeySize: 8, ValueSize: 100, Memory: 64 << 10, PageSize: 16 << 10, Records: 1000,
				})
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			const keys, rounds = 1000, 20 // 120 KB live, 2.4 MB written
			key, value := make([]byte, 8), make([]byte, 100)
			verify := func(st *kv.Store) {
				t.Helper()
				for n := range uint64(keys) {
					binary.LittleEndian.PutUint64(key, n)
					got, err := st.Read(context.Background(), key, nil)
					if err != nil || binary.LittleEndian.Uint64(got) != n+rounds-1 {
						t.Fatalf("key %d: %x, %v", n, got, err)
					}
				}
			}
			st := openStore()
			for round := range uint64(rounds) {
				for n := range uint64(keys) {
					binary.LittleEndian.PutUint64(key, n)
					binary.LittleEndian.PutUint64(value, n+round)
					if err := st.Upsert(context.Background(), key, value); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := st.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
			before := diskUsage(t, dir)
			info, err := st.Compact(context.Background(), kv.CompactOptions{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			after := diskUsage(t, dir)
			if live := int64(keys * 120); before < live*rounds*9/10 || after > live*4 {
				t.Errorf("%d bytes on disk before, %d after, of which %d are live: %+v", before, after, live, info)
			}
			t.Logf("%d KiB on disk before, %d KiB after", before>>10, after>>10)
			verify(st)
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			st = openStore()
			verify(st)
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
