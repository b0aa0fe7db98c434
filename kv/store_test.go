package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// small returns options with so little memory that a few hundred records fill it many times.
func small(dev device.Device, keySize, valueSize int) Options {
	return Options{
		Device: dev, KeySize: keySize, ValueSize: valueSize,
		Memory: 4 << 10, PageSize: 1 << 10, Records: 64, QueueDepth: 16,
	}
}

// open opens a store. A new store always has the same seed, so that counts are reproducible.
func open(t testing.TB, opts Options) *Store {
	t.Helper()
	if opts.hashSeed == 0 {
		opts.hashSeed = 1
	}
	st, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func closeAll(t testing.TB, closers ...interface{ Close() error }) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// readBack is testrun.Bytes of a key that the store must have: without it, data are lost.
func readBack(value []byte, err error) testrun.Read {
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w %w", testrun.ErrWrong, err)
	}
	return testrun.Bytes(value, err)
}

func key8(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// runner executes operations: a Session, or a Store as a storeRunner.
type runner interface{ Run(op *Op) error }

type storeRunner struct{ st *Store }

func (r storeRunner) Run(op *Op) error { return r.st.Run(context.Background(), op) }

// putUntil stores key n with that expiry, or without one if expires is 0.
func putUntil(t testing.TB, to runner, n uint64, expires int64) {
	t.Helper()
	if err := to.Run(&Op{Kind: OpUpsert, Key: key8(n), Value: key8(n), Expires: expires}); err != nil {
		t.Fatal(err)
	}
}

// putUnlike stores keys. It deletes one in five and gives another one in five a distant
// expiry, and returns the others.
func putUnlike(t testing.TB, s *Session, keys uint64, key, value func(n uint64) []byte) map[uint64]bool {
	t.Helper()
	others := map[uint64]bool{}
	for n := range keys {
		err := s.Upsert(key(n), value(n))
		switch n % 5 {
		case 1:
			err = errors.Join(err, s.Delete(key(n)))
		case 2:
			err = errors.Join(err, s.Run(&Op{Kind: OpUpsert, Key: key(n), Value: value(n), Expires: 1 << 50}))
		default:
			others[n] = true
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return others
}

// add returns the Modifier of a counter.
func add(delta uint64) Modifier {
	return func(u *Update) Verdict {
		n := delta
		if u.Found {
			n += binary.LittleEndian.Uint64(u.Old)
		}
		u.New = binary.LittleEndian.AppendUint64(u.New, n)
		return Put
	}
}

// modifier returns a Modifier that always puts a value.
func modifier(f func(dst, old []byte, found bool) []byte) Modifier {
	return func(u *Update) Verdict {
		u.New = f(u.New, u.Old, u.Found)
		return Put
	}
}

func TestOperations(t *testing.T) {
	for name, sizes := range map[string][2]int{"fixed": {8, 8}, "fixed wide": {8, 100}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			st := open(t, small(device.NewMemory(), sizes[0], sizes[1]))
			s := st.NewSession()
			value := func(n uint64) []byte {
				v := key8(n)
				return append(v, make([]byte, max(sizes[1], 8)-8)...)
			}
			const keys = 1000 // much more than memory holds
			for n := range uint64(keys) {
				if err := s.Upsert(key8(n), value(n)); err != nil {
					t.Fatal(err)
				}
			}
			for n := range uint64(keys) {
				got, err := s.Read(key8(n), []byte("front"))
				if err != nil || !bytes.Equal(got[5:], value(n)) || string(got[:5]) != "front" {
					t.Fatalf("key %d: %q, %v", n, got, err)
				}
			}
			if got, err := s.Read(key8(keys), []byte("front")); !errors.Is(err, ErrNotFound) || string(got) != "front" {
				t.Errorf("a key that is not there: %q, %v", got, err)
			}
			for n := uint64(0); n < keys; n += 3 {
				if err := s.Delete(key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			modify := func(dst, old []byte, found bool) []byte {
				if !found {
					return append(dst, value(7)...)
				}
				return append(dst, value(binary.LittleEndian.Uint64(old)+1)...)
			}
			for n := range uint64(keys) {
				if err := s.RMW(key8(n), modifier(modify)); err != nil {
					t.Fatal(err)
				}
			}
			for n := range uint64(keys) {
				want := value(n + 1)
				if n%3 == 0 {
					want = value(7)
				}
				readBack(s.Read(key8(n), nil)).Want(t, want, "key %d after RMW", n)
			}
			closeAll(t, s, st)
			m := st.past
			if m.Operations.Reads != 2*keys+1 || m.Operations.Upserts != keys || m.Operations.RMWs != keys || m.ReadsFrom.Tier[0] == 0 || m.ReadsFrom.Memory == 0 ||
				m.ReadsFrom.Tier[0]+m.ReadsFrom.Memory != m.Operations.Reads {
				t.Errorf("counts: %+v", m)
			}
		})
	}
}

func TestLogTakesWhatTheArithmeticSays(t *testing.T) {
	opts := Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20, Records: 50_000}
	st := open(t, opts)
	s := st.NewSession()
	const records = 50_000
	for n := range uint64(records) {
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	m := st.Metrics()
	pages := (m.Log.Tail + int64(st.log.PageSize()) - 1) / int64(st.log.PageSize())
	if got, want := m.Log.Tail-hlog.FirstAddress, int64(records*24); got < want || got > want+pages*24 {
		t.Errorf("a log of %d bytes for %d records, want %d and less than a record a page", got, records, want)
	}
	if m.Log.MemoryBytes > m.Log.MemoryBudget || m.Log.MemoryBudget > opts.Memory {
		t.Errorf("%d bytes in memory, budget %d, asked %d", m.Log.MemoryBytes, m.Log.MemoryBudget, opts.Memory)
	}
	closeAll(t, s, st)
}

func TestUpdatesInPlaceKeepTheLogAsItIs(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), Memory: 1 << 20, Records: 100})
	s := st.NewSession()
	for _, value := range []string{"0123456789abcdef", "shorter", "", "fits in space"} {
		if err := s.Upsert([]byte("key"), []byte(value)); err != nil {
			t.Fatal(err)
		}
		readBack(s.Read([]byte("key"), nil)).Want(t, []byte(value), "read")
	}
	if tail := st.Metrics().Log.Tail; tail != hlog.FirstAddress+40 {
		t.Errorf("tail %d: not one record of 8+8+8+16 bytes", tail)
	}
	if err := s.Upsert([]byte("key"), []byte("longer than the space it was given")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read([]byte("key"), nil); err != nil || !strings.HasPrefix(string(got), "longer") {
		t.Errorf("%q, %v", got, err)
	}
	closeAll(t, s, st)
}

func TestStreamKeepsColdReadsUnderWay(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	const keys = 2000
	for n := range uint64(keys) {
		if err := s.Upsert(key8(n), key8(n*n)); err != nil {
			t.Fatal(err)
		}
	}
	ops := make([]Op, keys)
	var done [8]*Op
	finished, deepest := 0, 0
	check := func(op *Op) {
		finished++
		n := binary.LittleEndian.Uint64(op.Key)
		if op.Err != nil || !bytes.Equal(op.Value, key8(n*n)) {
			t.Fatalf("key %d: %x, %v", n, op.Value, op.Err)
		}
	}
	for i := range ops {
		ops[i] = Op{Kind: OpRead, Key: key8(uint64(i))}
		for {
			err := s.Submit(&ops[i])
			if errors.Is(err, ErrQueueFull) {
				if err := s.Wait(context.Background()); err != nil {
					t.Fatal(err)
				}
				for _, op := range done[:s.Poll(done[:])] {
					check(op)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		deepest = max(deepest, s.Pending())
	}
	for s.Pending() > 0 {
		if err := s.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, op := range done[:s.Poll(done[:])] {
			check(op)
		}
	}
	if finished != keys || deepest != 16 {
		t.Errorf("%d of %d operations finished, at most %d under way", finished, keys, deepest)
	}
	closeAll(t, s, st)
}

// TestProgramOrder submits writes of cold keys and further operations on them without polling
// in between.
func TestProgramOrder(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	for n := range uint64(2000) {
		if err := s.Upsert(key8(n), key8(100)); err != nil {
			t.Fatal(err)
		}
	}
	double := modifier(func(dst, old []byte, _ bool) []byte {
		return binary.LittleEndian.AppendUint64(dst, 2*binary.LittleEndian.Uint64(old))
	})
	for n := range uint64(300) {
		ops := []Op{
			{Kind: OpRMW, Key: key8(n), Modify: add(1)},
			{Kind: OpRMW, Key: key8(n), Modify: double},
			{Kind: OpRead, Key: key8(n)},
			{Kind: OpUpsert, Key: key8(n), Value: key8(5)},
			{Kind: OpRMW, Key: key8(n), Modify: double},
			{Kind: OpDelete, Key: key8(n)},
			{Kind: OpRMW, Key: key8(n), Modify: add(3)},
			{Kind: OpRead, Key: key8(n)},
		}
		if err := s.Do(context.Background(), ops); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ops[2].Value, key8(202)) || !bytes.Equal(ops[7].Value, key8(3)) {
			t.Fatalf("key %d: %x and %x, want 202 and 3", n, ops[2].Value, ops[7].Value)
		}
	}
	closeAll(t, s, st)
}

func TestReopen(t *testing.T) {
	for name, sizes := range map[string][2]int{"fixed": {8, 8}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			dev := device.NewMemory()
			opts := small(dev, sizes[0], sizes[1])
			want := map[uint64]uint64{}
			for round := range uint64(5) {
				st := open(t, opts)
				for n := range uint64(400) {
					got, err := st.Read(context.Background(), key8(n), nil)
					if v, ok := want[n]; ok != (err == nil) || ok && !bytes.Equal(got, key8(v)) {
						t.Fatalf("round %d, key %d: %x, %v; want %d, %v", round, n, got, err, v, ok)
					}
				}
				for n := round; n < 400; n += 1 + round {
					if n%7 == round {
						delete(want, n)
						if err := st.Delete(context.Background(), key8(n)); err != nil {
							t.Fatal(err)
						}
						continue
					}
					want[n] = n * round
					if err := st.Upsert(context.Background(), key8(n), key8(n*round)); err != nil {
						t.Fatal(err)
					}
				}
				closeAll(t, st)
				dev = dev.Reopen()
				opts.Device = dev
			}
		})
	}
}

func TestOpenRefusesOtherOptions(t *testing.T) {
	dev := device.NewMemory()
	closeAll(t, open(t, small(dev, 8, 8)))
	dev = dev.Reopen()
	for _, change := range []func(*Options){
		func(o *Options) { o.ValueSize = 16 },
		func(o *Options) { o.KeySize, o.ValueSize = 0, 0 },
		func(o *Options) { o.PageSize = 512 },
	} {
		opts := small(dev, 8, 8)
		change(&opts)
		if _, err := Open(opts); !errors.Is(err, ErrMismatch) {
			t.Errorf("opened with %+v: %v", opts, err)
		}
	}
	for data, want := range map[string]error{
		`{"format":1,"key_size":8,"value_size":8,"page_size":1024,"begin":64,"tail":64}`: ErrMismatch,
		`{"format":3,"checksum":"","manifest":{}}`:                                       ErrCorrupt,
		`{"format":3`: ErrCorrupt,
	} {
		if err := dev.WriteMeta(manifest.Name, []byte(data)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(small(dev, 8, 8)); !errors.Is(err, want) {
			t.Errorf("opened with %s as manifest: %v", data, err)
		}
	}
	closeAll(t, dev)
}

func TestBadInput(t *testing.T) {
	for _, tc := range []struct {
		opts Options
		want string // in the error
	}{
		{Options{Device: device.NewNull(), Memory: math.MaxInt64}, "Options.Memory"},
		{Options{Device: device.NewNull(), MaxMemory: math.MaxInt64}, "MaxMemory"},
		{Options{Device: device.NewNull(), Records: 1 << 42}, "Options.Records"},
	} {
		if st, err := Open(tc.opts); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Open(%+v): %v, want something on %s", tc.opts, err, tc.want)
			if err == nil {
				closeAll(t, st)
			}
		}
	}
	for _, opts := range []Options{
		{},
		{Device: device.NewNull(), KeySize: 8},
		{Device: device.NewNull(), KeySize: -8, ValueSize: -8},
		{Device: device.NewNull(), Records: -1},
		{Device: device.NewNull(), QueueDepth: -1},
		{Device: device.NewNull(), Memory: -1},
		{Device: device.NewNull(), Memory: 1 << 10, PageSize: 1 << 10},
		{Device: device.NewNull(), PageSize: 1000},
		{Device: device.NewNull(), MutableFraction: 2},
		{Device: device.NewNull(), Memory: 1 << 62},
	} {
		if st, err := Open(opts); err == nil {
			t.Errorf("Open(%+v) succeeded", opts)
			closeAll(t, st)
		}
	}
	fixed, variable := open(t, small(device.NewMemory(), 8, 8)), open(t, small(device.NewMemory(), 0, 0))
	for name, err := range map[string]error{
		"short key":      fixed.Upsert(context.Background(), []byte("short"), key8(1)),
		"long value":     fixed.Upsert(context.Background(), key8(1), make([]byte, 9)),
		"no key":         variable.Upsert(context.Background(), nil, key8(1)),
		"key too long":   variable.Delete(context.Background(), make([]byte, hlog.MaxKeySize+1)),
		"over the page":  variable.Upsert(context.Background(), key8(1), make([]byte, 1<<10)),
		"RMW over it":    variable.RMW(context.Background(), key8(1), modifier(func(dst, _ []byte, _ bool) []byte { return append(dst, make([]byte, 1<<10)...) })),
		"RMW wrong size": fixed.RMW(context.Background(), key8(1), modifier(func(dst, _ []byte, _ bool) []byte { return append(dst, 1) })),
	} {
		if !errors.Is(err, ErrBadSize) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := variable.RMW(context.Background(), key8(1), nil); err == nil {
		t.Error("RMW without a modifier succeeded")
	}
	if _, err := fixed.Read(context.Background(), key8(1), nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("after failed writes: %v", err)
	}
	for name, err := range map[string]error{
		"fixed": fixed.CheckSize(8, 8), "key of fixed": fixed.CheckKey(8), "variable": variable.CheckSize(3, 100), "key of variable": variable.CheckKey(100),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"value of fixed": fixed.CheckSize(8, 9), "key of fixed": fixed.CheckKey(7), "over the page": variable.CheckSize(8, 1<<10),
		"key over the page": variable.CheckKey(1 << 10), "long key": variable.CheckKey(hlog.MaxKeySize + 1),
	} {
		if !errors.Is(err, ErrBadSize) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := fixed.NewSession()
	if err := fixed.Close(); err == nil {
		t.Error("closed with an open session")
	}
	closeAll(t, s, fixed, fixed, variable)
	late := fixed.NewSession()
	for name, err := range map[string]error{
		"session": s.Upsert(key8(1), key8(1)),
		"batch":   s.Do(context.Background(), nil),
		"late":    late.Delete(key8(1)),
		"store":   fixed.Upsert(context.Background(), key8(1), key8(1)),
		"commit":  fixed.Commit(context.Background()),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	closeAll(t, late)
}

func TestIndexThatIsFarTooSmall(t *testing.T) {
	testrun.SkipRaced(t, "one goroutine operates")
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 4 << 20, Records: 1, FixedIndex: true})
	s := st.NewSession()
	var full error
	n := uint64(0)
	for ; n < 1_000_000 && full == nil; n++ {
		full = s.Upsert(key8(n), key8(n))
	}
	if !errors.Is(full, ErrIndexFull) || n < 5<<index.MinBits*index.PerBucket {
		t.Fatalf("after %d keys: %v", n, full)
	}
	for k := range n - 1 {
		readBack(s.Read(key8(k), nil)).Want(t, key8(k), "key %d in a full index", k)
	}
	closeAll(t, s, st)
}

var oneHash = index.NewHash(1)
