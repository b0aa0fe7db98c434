package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/redykv/redykv/internal/testrun"
)

// A history records the operations of concurrent sessions on a key: the arguments and result
// of each, and the times of its begin and end. The store is linearizable if for each key there
// is an order of its operations that explains all results, in which each operation takes
// effect at one moment between its begin and its end.

// deed is an operation in a history. A value is identified by the number of the operation that
// wrote it; 0 is no value. The number of a value whose record expires contains mortal.
type deed struct {
	kind deedKind
	key  uint64
	id   uint64
}

const mortal = 1 << 40

type deedKind uint8

const (
	deedRead   deedKind = iota // has a result
	deedUpsert                 // writes id
	deedMortal                 // writes id, which expires when the clock is moved
	deedDead                   // writes a record that has expired
	deedDelete
	deedRMW    // sees a value, writes id
	deedCarry  // sees a value, writes id, which expires if the value did
	deedKeep   // sees a value, changes nothing
	deedRemove // sees a value, removes it if its number is even
	deedInsert // writes id if it sees nothing
	deedKinds
)

func (d deed) String() string {
	names := [deedKinds]string{"read", "upsert", "mortal", "dead", "delete", "rmw", "carry", "keep", "remove", "insert"}
	return fmt.Sprintf("%s %d", names[d.kind], d.id)
}

// historyModel is the model of a key. Its state is the number of its value, and a result is a
// number as well. An insert that succeeds saw 0; one that fails may have seen any other value.
var historyModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		was, d, saw := state.(uint64), input.(deed), output.(uint64)
		switch d.kind {
		case deedRead, deedKeep:
			return saw == was, was
		case deedUpsert:
			return true, d.id
		case deedMortal:
			return true, d.id | mortal
		case deedDead, deedDelete:
			return true, uint64(0)
		case deedRMW:
			return saw == was, d.id
		case deedCarry:
			return saw == was, d.id | was&mortal
		case deedRemove:
			if was%2 == 0 {
				return saw == was, uint64(0)
			}
			return saw == was, was
		case deedInsert:
			if saw != 0 {
				return was != 0, was
			}
			return was == 0, d.id
		}
		return false, was
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[uint64][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(deed).key
			byKey[key] = append(byKey[key], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
}

// checkHistory reports a key whose history is not linearizable.
func checkHistory(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	for _, part := range historyModel.Partition(history) {
		if porcupine.CheckOperations(historyModel, part) {
			continue
		}
		// Find the shortest prefix that is not linearizable: its last operation cannot be
		// explained.
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
		n := 1
		for ; n < len(part) && porcupine.CheckOperations(historyModel, part[:n]); n++ {
		}
		lines := ""
		for _, o := range part[max(n-20, 0):n] {
			lines += fmt.Sprintf("[%d,%d] %v saw %v\n", o.Call, o.Return, o.Input, o.Output)
		}
		testrun.Wrong(t, "key %d: no order of %d operations; the last of them\n%s", part[0].Input.(deed).key, n, lines)
	}
}

func TestHistoriesTellGoodFromBad(t *testing.T) {
	o := func(call, end int64, kind deedKind, id, saw uint64) porcupine.Operation {
		return porcupine.Operation{Input: deed{kind: kind, id: id}, Call: call, Return: end, Output: saw}
	}
	write := o(1, 4, deedUpsert, 7, 0)
	for name, tc := range map[string]struct {
		good    bool
		history []porcupine.Operation
	}{
		"stale read":      {false, []porcupine.Operation{write, o(5, 6, deedRead, 0, 0)}},
		"concurrent read": {true, []porcupine.Operation{write, o(2, 3, deedRead, 0, 0)}},
		"lost update":     {false, []porcupine.Operation{o(1, 4, deedRMW, 8, 0), o(2, 3, deedRMW, 9, 0)}},
		"two inserts":     {false, []porcupine.Operation{o(1, 4, deedInsert, 8, 0), o(2, 3, deedInsert, 9, 0)}},
		"insert too late": {true, []porcupine.Operation{write, o(5, 6, deedInsert, 9, exists)}},
		"back from death": {false, []porcupine.Operation{write, o(5, 6, deedDelete, 0, 0), o(7, 8, deedRead, 0, 7)}},
	} {
		if porcupine.CheckOperations(historyModel, tc.history) != tc.good {
			t.Errorf("%s: the checker is wrong", name)
		}
	}
}

// exists is the result of an insert that failed.
const exists = 1<<64 - 1

// chronicler executes operations and records their history.
type chronicler struct {
	sizes   [2]int
	fillers uint64        // other keys
	now     *atomic.Int64 // the store's clock
	clock   atomic.Int64  // of the history
	ids     atomic.Uint64 // of operations, and so of values
}

// value returns the value of operation id. If lengths vary, its length depends on id.
func (c *chronicler) value(dst []byte, id uint64) []byte {
	n := c.sizes[1]
	if c.sizes[0] == 0 {
		n = 8 + int(id*7%40)
	}
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, id)
	for len(dst)-at < n {
		dst = append(dst, byte(id))
	}
	return dst
}

// id is the inverse of value. It checks that the value is not torn.
func (c *chronicler) id(value []byte) (uint64, error) {
	if len(value) < 8 {
		return 0, fmt.Errorf("value %x", value)
	}
	id := binary.LittleEndian.Uint64(value)
	if !bytes.Equal(value, c.value(nil, id)) {
		return 0, fmt.Errorf("torn value %x", value)
	}
	return id, nil
}

// recorded is an operation that has begun.
type recorded struct {
	deed
	op   Op
	saw  uint64
	bad  error
	call int64
}

// begin makes an operation and records its begin.
func (c *chronicler) begin(kind deedKind, key uint64) *recorded {
	r := &recorded{deed: deed{kind, key, c.ids.Add(1)}}
	r.op.Key = key8(key)
	modify := func(change func(u *Update) Verdict) {
		r.op.Kind = OpRMW
		r.op.Modify = func(u *Update) Verdict {
			if r.saw, r.bad = 0, nil; u.Found {
				r.saw, r.bad = c.id(u.Old)
			}
			for range r.id % 4 { // markers move while this session is inside an epoch
				runtime.Gosched()
			}
			return change(u)
		}
	}
	switch kind {
	case deedUpsert, deedMortal, deedDead:
		r.op.Kind, r.op.Value = OpUpsert, c.value(nil, r.id)
		switch kind {
		case deedMortal:
			r.op.Value = c.value(nil, r.id|mortal)
			r.op.Expires = c.now.Load() + 1
		case deedDead:
			r.op.Expires = c.now.Load()
		}
	case deedDelete:
		r.op.Kind = OpDelete
	case deedInsert:
		r.op.Kind, r.op.Value = OpInsert, c.value(nil, r.id)
	case deedRMW:
		modify(func(u *Update) Verdict {
			u.New, u.Expires = c.value(u.New, r.id), 0
			return Put
		})
	case deedCarry:
		modify(func(u *Update) Verdict {
			u.New = c.value(u.New, r.id|r.saw&mortal)
			return Put
		})
	case deedKeep:
		modify(func(*Update) Verdict { return Keep })
	case deedRemove:
		modify(func(*Update) Verdict {
			if r.saw%2 == 0 {
				return Remove
			}
			return Keep
		})
	}
	r.call = c.clock.Add(1)
	return r
}

// end records the end of the operation.
func (c *chronicler) end(r *recorded) (porcupine.Operation, error) {
	end := c.clock.Add(1)
	err := r.op.Err
	switch {
	case r.kind == deedRead && err == nil:
		r.saw, err = c.id(r.op.Value)
	case r.kind == deedRead && errors.Is(err, ErrNotFound):
		err = nil
	case r.kind == deedInsert && errors.Is(err, ErrExists):
		r.saw, err = exists, nil
	}
	return porcupine.Operation{Input: r.deed, Call: r.call, Output: r.saw, Return: end}, errors.Join(err, r.bad)
}
