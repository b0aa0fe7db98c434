package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// TestDamageOnDisk changes bytes of the log's file. A read of a damaged record returns an
// error that names the file, never a wrong value. So does a compaction, which removes nothing
// that it cannot copy, and so does Open, which reads all records.
func TestDamageOnDisk(t *testing.T) {
	testrun.SkipRaced(t, "one goroutine operates")
	const records = 100_000
	dir := t.TempDir()
	st := openSSD(t, dir, options(records))
	s := st.NewSession()
	key := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for n := range uint64(records) {
		if err := s.Upsert(key(n), key(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	segment := filepath.Join(dir, "000000000000.seg")
	f, err := os.OpenFile(segment, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{5000, 300_000, 300_001} { // not in memory any more
		_, err = f.WriteAt([]byte{0x5a}, at)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	corrupt := func(err error) bool {
		return errors.Is(err, kv.ErrCorrupt) && strings.Contains(err.Error(), segment)
	}
	damaged := 0
	for n := range uint64(records) {
		value, err := s.Read(key(n), nil)
		switch {
		case corrupt(err):
			damaged++
		case err != nil || !bytes.Equal(value, key(n+1)):
			t.Fatalf("key %d: %x, %v", n, value, err)
		}
	}
	// Two blocks of 4 KiB, in records of 24 bytes.
	if damaged < 2*4096/24-2 || damaged > 2*(4096/24+2) {
		t.Errorf("%d records cannot be read, want those of two blocks", damaged)
	}
	for _, method := range []kv.CompactMethod{kv.CompactByLookup, kv.CompactByScan} {
		_, err := st.Compact(t.Context(), kv.CompactOptions{Bytes: 1 << 20, Method: method})
		if begin := st.Metrics().Log.Begin; !corrupt(err) || begin > 5000 {
			t.Errorf("compaction %v: %v, and the log begins at %d; want ErrCorrupt and the name of the file, and damage kept", method, err, begin)
		}
	}
	if err := errors.Join(s.Close(), st.Close()); err != nil {
		t.Fatal(err)
	}
	opts := onFiles(t, dir, options(records))
	objects, err := opts.Device.ListObjects()
	for _, name := range objects { // the copy of the index that Close left, with which Open does not read the damage
		err = errors.Join(err, opts.Device.RemoveObject(name))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Open(opts); !corrupt(err) {
		t.Errorf("opening the store: %v, want ErrCorrupt and the name of the file", err)
	}
	if err := opts.Device.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamageAtTheEndNamesOlderStates damages the last bytes of a store. Open fails, and its
// error names the file and the older states. One of those is then recovered.
func TestDamageAtTheEndNamesOlderStates(t *testing.T) {
	for name, damage := range map[string]func(segment string, tail int64) error{
		"block": func(segment string, tail int64) error {
			f, err := os.OpenFile(segment, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{0x5a, 0xa5}, tail-100)
			return errors.Join(err, f.Close())
		},
		"cut": func(segment string, tail int64) error { return os.Truncate(segment, tail-5000) },
	} {
		t.Run(name, func(t *testing.T) {
			const records = 10_000
			dir := t.TempDir()
			st := openSSD(t, dir, options(records))
			key := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
			put := func(add uint64) {
				for n := range uint64(records) {
					if err := st.Upsert(context.Background(), key(n), key(n+add)); err != nil {
						t.Fatal(err)
					}
				}
			}
			put(1)
			if _, err := st.Checkpoint(t.Context(), kv.CheckpointOptions{Name: "older"}); err != nil {
				t.Fatal(err)
			}
			put(2)
			tail := st.Metrics().Log.Tail
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			segment := filepath.Join(dir, "000000000000.seg")
			if err := damage(segment, tail); err != nil {
				t.Fatal(err)
			}
			opts := onFiles(t, dir, options(records))
			_, err := kv.Open(opts)
			if !errors.Is(err, kv.ErrCorrupt) || !strings.Contains(err.Error(), segment) || !strings.Contains(err.Error(), `Options.Recover can name "older"`) {
				t.Errorf("opening: %v", err)
			}
			opts.Recover = "older"
			if st, err = kv.Open(opts); err != nil {
				t.Fatal(errors.Join(err, opts.Device.Close()))
			}
			for n := range uint64(records) {
				testrun.Bytes(st.Read(context.Background(), key(n), nil)).Want(t, key(n+1), "key %d", n)
			}
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
