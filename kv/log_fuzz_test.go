package kv

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/restore"
)

// rawSeed is the hash seed of rawLog and committedLog.
const rawSeed = 1

// rawLog returns a device with a store whose log consists of the bytes b.
func rawLog(t testing.TB, keySize, valueSize int, b []byte) *device.Memory {
	t.Helper()
	disk := device.NewMemory()
	w, err := restore.NewWriter(disk)
	if err == nil {
		err = errors.Join(w.Add(0, append(make([]byte, hlog.FirstAddress), b...)), w.Flush(), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	hash := index.NewHash(rawSeed)
	m := manifest.Manifest{
		KeySize: keySize, ValueSize: valueSize, PageSize: 512, Sequence: 1,
		HashSeed: rawSeed, Hash: hash.Of([]byte(manifest.HashProbe)),
		Commit: manifest.State{Sequence: 1, Begin: hlog.FirstAddress, Tail: int64(hlog.FirstAddress + len(b))},
	}
	data, err := m.Encode()
	if err == nil {
		err = disk.WriteMeta(manifest.Name, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// committedLog returns the bytes of a log with that many records of a few keys.
func committedLog(f *testing.F, keySize, valueSize, records int) []byte {
	disk := device.NewMemory()
	opts := small(disk, keySize, valueSize)
	opts.PageSize, opts.Memory, opts.hashSeed = 512, 2048, rawSeed
	st := open(f, opts)
	for n := range uint64(records) {
		if err := st.Upsert(context.Background(), key8(n%10), key8(n)); err != nil {
			f.Fatal(err)
		}
	}
	if err := st.Commit(context.Background()); err != nil {
		f.Fatal(err)
	}
	b := make([]byte, st.log.Tail()-hlog.FirstAddress)
	if c := devicetest.Read(f, disk, b, hlog.FirstAddress); c.Err != nil {
		f.Fatal(c.Err)
	}
	closeAll(f, st)
	return b
}

// FuzzLog opens a store on arbitrary bytes and runs all operations. The store refuses the
// bytes, or works with them without a crash.
func FuzzLog(f *testing.F) {
	for _, sizes := range [][2]int{{8, 8}, {}} {
		for _, records := range []int{3, 100} {
			b := committedLog(f, sizes[0], sizes[1], records)
			f.Add(sizes[0] > 0, b)
			b[len(b)/2] ^= 0x40
			f.Add(sizes[0] > 0, b)
		}
	}
	f.Fuzz(func(t *testing.T, fixed bool, b []byte) {
		keySize, valueSize := 0, 0
		if fixed {
			keySize, valueSize = 8, 8
		}
		opts := small(rawLog(t, keySize, valueSize, b[:min(len(b), 1<<14)&^7]), keySize, valueSize)
		opts.PageSize, opts.Memory = 512, 2048
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
		allowed := func(err error) {
			t.Helper()
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrBadSize) {
				t.Error(err)
			}
		}
		st, err := Open(opts)
		if err != nil {
			allowed(err)
			return
		}
		s := st.NewSession()
		keys := [][]byte{key8(1), key8(2)}
		for r, err := range st.ScanLog(0, 0) {
			allowed(err)
			if err == nil && len(keys) < 50 {
				keys = append(keys, append([]byte(nil), r.Key...))
			}
		}
		for _, err := range st.Scan() {
			allowed(err)
		}
		for at, begun := Cursor(0), false; !begun || at != 0; begun = true {
			at, err = st.ScanFrom(at, 10, func(Record) bool { return true })
			allowed(err)
		}
		ops := make([]Op, len(keys))
		for i, key := range keys {
			_, err := st.Read(context.Background(), key, nil)
			allowed(err)
			ops[i] = Op{Kind: OpKind(i % int(OpInsert+1)), Key: key, Value: key8(7)}
			ops[i].Modify = modifier(func(dst, old []byte, _ bool) []byte { return append(append(dst, old...), key8(0)...)[:8] })
			if i%3 == 0 {
				ops[i].Modify = func(*Update) Verdict { return Remove }
			}
		}
		_ = s.Do(context.Background(), ops) // each has its own error
		for i := range ops {
			if !errors.Is(ops[i].Err, ErrExists) {
				allowed(ops[i].Err)
			}
		}
		for _, method := range compactMethods {
			_, err := st.Compact(context.Background(), CompactOptions{Method: method})
			allowed(err)
		}
		closeAll(t, s, st)
	})
}

// FuzzCursor parses arbitrary text as a cursor. A scan from there ends, and finds only
// existing records.
func FuzzCursor(f *testing.F) {
	const keys = 100
	st := open(f, small(device.NewMemory(), 8, 8))
	f.Cleanup(func() { closeAll(f, st) })
	for n := range uint64(keys) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			f.Fatal(err)
		}
	}
	for at, n := Cursor(0), 0; n == 0 || at != 0; n++ {
		var err error
		if at, err = st.ScanFrom(at, 10, func(Record) bool { return true }); err != nil {
			f.Fatal(err)
		}
		f.Add(at.String())
	}
	for _, c := range []Cursor{1<<64 - 1, 1 << 63, 1 << 45, newCursor(index.Positions-1, 1)} {
		f.Add(c.String())
	}
	f.Add("-1")
	f.Fuzz(func(t *testing.T, text string) {
		at, err := ParseCursor(text)
		if err != nil {
			return
		}
		if again, err := ParseCursor(at.String()); err != nil || again != at {
			t.Errorf("%q is %v, and then %v, %v", text, uint64(at), uint64(again), err)
		}
		if n, _ := strconv.ParseUint(text, 10, 64); n != uint64(at) {
			t.Errorf("%q is %d", text, uint64(at))
		}
		for steps := 0; steps == 0 || at != 0; steps++ {
			if steps > keys {
				t.Fatalf("from %q a scan of %d keys does not end", text, keys)
			}
			at, err = st.ScanFrom(at, 10, func(r Record) bool {
				if loadWord(r.Key) >= keys || string(r.Key) != string(r.Value) {
					t.Errorf("found %x = %x", r.Key, r.Value)
				}
				return true
			})
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
		}
	})
}
