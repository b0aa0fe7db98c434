package kv

import (
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// TestOperationsOutliveTruncation starts operations that are bound for records
// which compaction then moves, and whose place is truncated before they are read:
// all end as if nothing had happened.
func TestOperationsOutliveTruncation(t *testing.T) {
	for name, hash := range map[string]func([]byte) uint64{"spread": nil, "collide": func([]byte) uint64 { return 42 }} {
		for _, method := range compactMethods {
			t.Run(name+"/"+method.String(), func(t *testing.T) {
				opts := small(device.NewMemory(), 8, 8)
				opts.hash, opts.QueueDepth = hash, 64
				st := open(t, opts)
				s := st.NewSession()
				const keys = 16
				for n := range uint64(keys) {
					if err := s.Upsert(key8(n), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.Delete(key8(keys - 1)); err != nil {
					t.Fatal(err)
				}
				for n := range uint64(500) { // the chain may go through these
					if err := s.Upsert(key8(1000+n%200), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				ops := make([]Op, 0, 3*keys)
				for n := range uint64(keys) {
					ops = append(ops, Op{Kind: OpRead, Key: key8(n)})
				}
				for n := range uint64(keys) {
					if n%2 == 0 {
						ops = append(ops, Op{Kind: OpRMW, Key: key8(n), Modify: add(100)})
					} else {
						ops = append(ops, Op{Kind: OpInsert, Key: key8(n), Value: key8(7)})
					}
				}
				for i := range ops {
					if err := s.Submit(&ops[i]); err != nil {
						t.Fatal(err)
					}
					if i == keys-1 {
						s.flush() // reads are on their way, but the bell is not rung
					}
				}
				other := st.NewSession()
				if err := other.Upsert(key8(0), key8(50)); err != nil { // one is replaced besides
					t.Fatal(err)
				}
				mustCompact(t, st, CompactOptions{Method: method})
				if begin := st.dev.Begin(); begin < 1024 || begin != st.log.Begin() {
					t.Fatalf("the device begins at %d, the log at %d", begin, st.log.Begin())
				}
				var done [keys]*Op
				for s.Pending() > 0 {
					if err := s.Wait(context.Background()); err != nil {
						t.Fatal(err)
					}
					s.Poll(done[:])
				}
				for i, op := range ops {
					n := uint64(i % keys)
					deleted := n == keys-1
					value, want := uint64(0), error(nil)
					if len(op.Value) == 8 {
						value = loadWord(op.Value)
					}
					switch {
					case op.Kind == OpInsert && !deleted:
						want = ErrExists
					case op.Kind == OpRead && deleted:
						want = ErrNotFound
					}
					if !errors.Is(op.Err, want) || want == nil && op.Err != nil ||
						op.Kind == OpRead && !deleted && value != n && (n != 0 || value != 50) {
						t.Errorf("operation %d of kind %d on key %d: %d, %v", i, op.Kind, n, value, op.Err)
					}
				}
				for n := range uint64(keys) {
					want := n
					switch {
					case n == 0:
						want = 150 // the update, then the addition
					case n == keys-1:
						want = 7
					case n%2 == 0:
						want += 100
					}
					v, err := other.Read(key8(n), nil)
					if err != nil || loadWord(v) != want && (n != 0 || loadWord(v) != 50) {
						t.Errorf("key %d: %x, %v; want %d", n, v, err, want)
					}
				}
				closeAll(t, s, other, st)
			})
		}
	}
}
