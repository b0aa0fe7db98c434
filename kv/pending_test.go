package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/index"
)

// TestColdWordsOfOneChain reads records of 8-byte keys and values from the device, in chains
// of two keys. The first record read is another key's, deleted, expired, or the right one.
func TestColdWordsOfOneChain(t *testing.T) {
	now := int64(MinExpires)
	opts := small(device.NewMemory(), 8, 8)
	opts.now = func() int64 { return now }
	opts.QueueDepth = 64
	st := open(t, opts)
	s := st.NewSession()
	defer closeAll(t, s, st)

	older, newer := chained(st, 12)
	absent := older[10:]
	var ops []Op
	want := make(map[uint64]error) // of the keys without a value
	for i := range 10 {
		ops = append(ops,
			Op{Kind: OpUpsert, Key: key8(older[i]), Value: key8(older[i] + 1)},
			Op{Kind: OpUpsert, Key: key8(newer[i]), Value: key8(newer[i] + 1)})
	}
	ops = append(ops, Op{Kind: OpDelete, Key: key8(newer[0])}, Op{Kind: OpDelete, Key: key8(older[1])},
		Op{Kind: OpUpsert, Key: key8(newer[2]), Value: key8(1), Expires: now + 1},
		Op{Kind: OpUpsert, Key: key8(older[3]), Value: key8(1), Expires: now + 1},
		Op{Kind: OpUpsert, Key: key8(older[4]), Value: key8(older[4] + 1), Expires: now + 1e6})
	want[newer[0]], want[older[1]], want[newer[2]], want[older[3]] = ErrNotFound, ErrNotFound, ErrNotFound, ErrNotFound
	ops = append(ops, // of the last two pairs only the newer keys are stored
		Op{Kind: OpUpsert, Key: key8(newer[10]), Value: key8(newer[10] + 1)},
		Op{Kind: OpUpsert, Key: key8(newer[11]), Value: key8(newer[11] + 1)})
	for _, n := range absent {
		want[n] = ErrNotFound
	}
	if err := s.Do(context.Background(), ops); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(1000) { // evicts all of them from memory
		if err := s.Upsert(key8(1<<63|n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	now += 2

	check := func(how string, op *Op) {
		t.Helper()
		n := binary.LittleEndian.Uint64(op.Key)
		switch err := want[n]; {
		case !errors.Is(op.Err, err) || err == nil && op.Err != nil:
			t.Errorf("%s of %#x: %v, want %v", how, n, op.Err, err)
		case err == nil && binary.LittleEndian.Uint64(op.Value) != n+1:
			t.Errorf("%s of %#x: %x, want %x", how, n, op.Value, n+1)
		case err == nil && op.Expires != 0 != (n == older[4]):
			t.Errorf("%s of %#x: expires at %d", how, n, op.Expires)
		}
	}
	for round := range 3 {
		before := st.Metrics()
		ops = ops[:0]
		for i := range older {
			for _, n := range []uint64{older[i], newer[i]} {
				op := Op{Key: key8(n), Expires: 5} // as if the Op had been used before
				if round > 0 {
					op.Value = make([]byte, 3, 8)
				}
				ops = append(ops, op)
			}
		}
		if err := s.Do(context.Background(), ops); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			check("batch", &ops[i])
			ops[i].Expires = 5
			if err := s.Submit(&ops[i]); err != nil {
				t.Fatal(err)
			}
		}
		done := make([]*Op, 1)
		for s.Pending() > 0 {
			if s.Poll(done) == 1 {
				check("stream", done[0])
			}
		}
		m := st.Metrics()
		if reads := m.ReadsFrom.Tier[0] - before.ReadsFrom.Tier[0]; reads != uint64(2*len(ops)) {
			t.Errorf("%d of %d reads counted as the device's", reads, 2*len(ops))
		}
		if m.Device.Reads-before.Device.Reads < uint64(2*len(ops)) {
			t.Errorf("%d records read for %d reads", m.Device.Reads-before.Device.Reads, 2*len(ops))
		}
	}
}

// chained returns pairs of keys that share a chain.
func chained(st *Store, pairs int) (older, newer []uint64) {
	type chain struct {
		bucket uint64
		tag    index.Entry
	}
	t, first := st.index.Load(), make(map[chain]uint64)
	for n := uint64(1); len(older) < pairs; n++ {
		hash := st.hash(key8(n))
		c := chain{hash & t.Mask(), index.EntryOf(hash, t.TagShift())}
		if at, there := first[c]; there {
			older, newer = append(older, at), append(newer, n)
			delete(first, c)
			continue
		}
		first[c] = n
	}
	return older, newer
}
