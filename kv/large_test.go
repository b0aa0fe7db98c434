package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/testrun"
)

const largeValue = 16 << 20

// TestLargeValues updates values of 16 MiB in place and by copies, writes them to the device
// and to snapshots, and reads them after recovery and compaction.
func TestLargeValues(t *testing.T) {
	testrun.SkipRaced(t, "values are copied word by word, which takes minutes, in one goroutine")
	base := make([]byte, largeValue)
	_, _ = rand.NewChaCha8([32]byte{16}).Read(base) // does not fail
	// stamped returns a value with its key and version at both ends.
	stamped := func(dst []byte, key, version uint64) []byte {
		dst = append(dst, base...)
		for _, at := range []int{0, largeValue - 16} {
			binary.LittleEndian.PutUint64(dst[len(dst)-largeValue+at:], key)
			binary.LittleEndian.PutUint64(dst[len(dst)-largeValue+at+8:], version)
		}
		return dst
	}
	for name, opts := range map[string]Options{
		"fixed":    {KeySize: 8, ValueSize: largeValue}, // with the default page size
		"variable": {PageSize: hlog.MaxPageSize},
	} {
		t.Run(name, func(t *testing.T) {
			disk := device.NewMemory()
			opts.Device, opts.Memory, opts.Records = disk, 4*hlog.MaxPageSize, 10
			st := open(t, opts)
			const keys = 6
			var versions [keys]uint64
			var buf, want []byte
			verify := func(when string) {
				t.Helper()
				for key, version := range versions {
					var err error
					want = stamped(want[:0], uint64(key), version)
					if buf, err = st.Read(context.Background(), key8(uint64(key)), buf[:0]); err != nil || !bytes.Equal(buf, want) {
						t.Fatalf("%s, key %d: %s, %v; want %s", when, key, brief(buf), err, brief(want))
					}
				}
			}
			for key := range versions {
				if err := st.Upsert(context.Background(), key8(uint64(key)), stamped(buf[:0], uint64(key), 0)); err != nil {
					t.Fatal(err)
				}
			}
			verify("written")
			if m := st.Metrics(); m.Device.Reads == 0 {
				t.Errorf("none of them was cold:\n%v", m)
			}
			inPlace := 0
			for _, key := range []uint64{keys - 1, 0, keys - 1} { // hot, cold, hot
				versions[key]++
				version := versions[key]
				err := st.Run(context.Background(), &Op{
					Kind: OpRMW, Key: key8(key),
					Modify: modifier(func(dst, old []byte, found bool) []byte {
						if !found || binary.LittleEndian.Uint64(old[8:]) != version-1 {
							t.Errorf("key %d: modifying %s", key, brief(old))
						}
						return stamped(dst, key, version)
					}),
					InPlace: func(value []byte) ([]byte, bool) {
						inPlace++
						return stamped(value[:0], key, version), true
					},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if inPlace == 0 {
				t.Error("nothing was modified in place")
			}
			verify("modified")
			mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot})
			if err := st.Upsert(context.Background(), key8(1), stamped(buf[:0], 1, 77)); err != nil { // lost in the crash
				t.Fatal(err)
			}
			crash(t, st)
			opts.Device = disk.Reopen()
			st = open(t, opts)
			verify("recovered")
			for _, method := range []CompactMethod{CompactByLookup, CompactByScan} {
				if err := st.Commit(context.Background()); err != nil {
					t.Fatal(err)
				}
				if info := mustCompact(t, st, CompactOptions{Method: method, Bytes: 3 * hlog.MaxPageSize}); info.Copied == 0 {
					t.Errorf("nothing was copied by %v: %+v", method, info)
				}
				verify("compacted by " + method.String())
			}
			closeAll(t, st)
		})
	}
}

// TestTooLargeValues checks the errors for values that are too large.
func TestTooLargeValues(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), Memory: 1 << 20})
	err := st.Upsert(context.Background(), []byte("key"), make([]byte, largeValue))
	if !errors.Is(err, ErrBadSize) || !strings.Contains(err.Error(), "PageSize") {
		t.Errorf("16 MiB in 1 MiB of memory: %v", err)
	}
	closeAll(t, st)
	for want, opts := range map[string]Options{
		"memory":     {KeySize: 8, ValueSize: largeValue, Memory: 64 << 20},
		"need pages": {KeySize: 8, ValueSize: 1000, PageSize: 1 << 10, Memory: 64 << 20},
		"at most":    {KeySize: 8, ValueSize: 2 * largeValue, Memory: 256 << 20},
	} {
		opts.Device = device.NewMemory()
		if st, err := Open(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
			if err == nil {
				closeAll(t, st)
			}
		}
	}
}
