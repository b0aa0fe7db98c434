package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redykv/redykv/device"
)

// prompt is a device that refuses reads below its begin at once, not in their completions.
type prompt struct {
	device.Device
	polled func() // called once, by the next queue that has a read completed; nil: no more
}

func (d *prompt) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &promptQueue{Queue: q, d: d}, err
}

type promptQueue struct {
	device.Queue
	d     *prompt
	reads bool
}

func (q *promptQueue) Poll(done []device.Completion) int {
	n := q.Queue.Poll(done)
	if q.reads && n > 0 && q.d.polled != nil {
		polled := q.d.polled
		q.d.polled = nil
		polled()
	}
	return n
}

func (q *promptQueue) Read(dst []byte, addr int64, tag uint64) error {
	q.reads = true
	if begin := q.d.Begin(); addr < begin {
		return fmt.Errorf("%d is below %d: %w", addr, begin, device.ErrNotHeld)
	}
	return q.Queue.Read(dst, addr, tag)
}

// TestOperationsOutlivePromptTruncation is TestOperationsOutliveTruncation for a device that refuses at once
// what it does not hold. The log is truncated when first reads have completed: the records are longer than
// what these read, or follow others in a chain, so there are more.
func TestOperationsOutlivePromptTruncation(t *testing.T) {
	for name, hash := range map[string]func([]byte) uint64{"spread": nil, "collide": func([]byte) uint64 { return 42 }} {
		for _, method := range compactMethods {
			t.Run(name+"/"+method.String(), func(t *testing.T) {
				dev := &prompt{Device: device.NewMemory()}
				opts := small(dev, 0, 0)
				opts.hash, opts.QueueDepth = hash, 64
				st := open(t, opts)
				s := st.NewSession()
				const keys = 16
				value := func(n uint64) []byte { return bytes.Repeat(key8(n), 40) }
				for n := range uint64(keys + 100) {
					if err := s.Upsert(key8(n), value(n)); err != nil {
						t.Fatal(err)
					}
				}
				ops := make([]Op, keys)
				for n := range ops {
					ops[n] = Op{Kind: OpRead, Key: key8(uint64(n))}
					if err := s.Submit(&ops[n]); err != nil {
						t.Fatal(err)
					}
				}
				s.flush() // reads are enqueued, without a doorbell
				truncated := false
				dev.polled = func() {
					truncated = true
					mustCompact(t, st, CompactOptions{Method: method})
				}
				var done [keys]*Op
				for s.Pending() > 0 {
					if err := s.Wait(context.Background()); err != nil {
						t.Fatal(err)
					}
					s.Poll(done[:])
				}
				if !truncated {
					t.Error("the log was not truncated")
				}
				for n := range ops {
					if ops[n].Err != nil || !bytes.Equal(ops[n].Value, value(uint64(n))) {
						t.Errorf("key %d: %d bytes, %v", n, len(ops[n].Value), ops[n].Err)
					}
				}
				closeAll(t, s, st)
			})
		}
	}
}

// TestOperationsOutliveTruncation starts operations on records that compaction then moves, and
// truncates the old place before it is read. The operations complete as without compaction.
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
				for n := range uint64(500) { // the chain may pass these
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
						s.flush() // reads are enqueued, without a doorbell
					}
				}
				other := st.NewSession()
				if err := other.Upsert(key8(0), key8(50)); err != nil { // one record is also replaced
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
					case op.Kind == OpRead && deleted && value != 7:
						want = ErrNotFound
					}
					// A read that starts again because of compaction may see a later value.
					later := n%2 == 0 && value == n+100 || n == 0 && (value == 50 || value == 150)
					if !errors.Is(op.Err, want) || want == nil && op.Err != nil ||
						op.Kind == OpRead && !deleted && value != n && !later {
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

// TestCompactionPassesLocks compacts and scans while a session holds locks on all keys and
// changes them. Moving a record does not change it.
func TestCompactionPassesLocks(t *testing.T) {
	for _, method := range compactMethods {
		t.Run(method.String(), func(t *testing.T) {
			st := open(t, small(device.NewMemory(), 8, 8))
			s := st.NewSession()
			const keys = 200
			want := map[string]string{}
			var locked [][]byte
			for n := range uint64(keys) {
				if err := s.Upsert(key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
				want[string(key8(n))] = string(key8(n))
				locked = append(locked, key8(n))
			}
			err := s.Atomically(context.Background(), locked, func() error {
				c := &compactor{st: st, opts: CompactOptions{Memory: 1 << 20}}
				until := c.page(st.log.SafeReadOnly())
				err := st.with(context.Background(), func(other *Session) error { // without the commit at the end, which would wait
					c.s = other
					if method == CompactByScan {
						_, err := c.scan(context.Background(), st.log.Begin(), until)
						return err
					}
					return c.lookup(context.Background(), st.log.Begin(), until)
				})
				if err != nil {
					return err
				}
				if c.info.Copied == 0 {
					t.Error("nothing was copied")
				}
				found := 0
				for _, err := range st.Scan() {
					if err != nil {
						return err
					}
					found++
				}
				if found != keys {
					t.Errorf("a scan finds %d of %d keys", found, keys)
				}
				for n := uint64(0); n < keys; n += 2 {
					if err := s.RMW(key8(n), add(100)); err != nil {
						return err
					}
					want[string(key8(n))] = string(key8(n + 100))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			check(t, st, keys, want)
			mustCompact(t, st, CompactOptions{Method: method})
			check(t, st, keys, want)
			closeAll(t, s, st)
		})
	}
}
