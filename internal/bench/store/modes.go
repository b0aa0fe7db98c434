package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// kinds are the kinds of a cell's operations, in a form that is cheap to test.
type kinds struct {
	kind  kv.OpKind
	mixed bool // reads and upserts
}

func (o Op) kinds() kinds {
	switch o {
	case Upsert:
		return kinds{kind: kv.OpUpsert}
	case RMW:
		return kinds{kind: kv.OpRMW}
	}
	return kinds{kind: kv.OpRead, mixed: o == Mixed}
}

// next returns the kind of the next operation. coins holds one random bit per operation of a
// mix.
func (k kinds) next(coins *uint64) kv.OpKind {
	if !k.mixed {
		return k.kind
	}
	bit := *coins & 1
	*coins = *coins>>1 | bit<<63
	return kv.OpKind(bit) // OpRead or OpUpsert
}

// set prepares op for record n. It is small enough to be inlined.
func (w *worker) set(op *kv.Op, kind kv.OpKind, n uint32) {
	op.Kind = kind
	record.PutKey(op.Key, uint64(n))
	if kind == kv.OpUpsert {
		w.fill(op, n)
	}
}

// fill sets the value of an upsert of record n. It is not part of set, which would become too
// large to be inlined.
//
//go:noinline
func (w *worker) fill(op *kv.Op, n uint32) {
	op.Value = op.Value[:w.valueSize]
	record.StampEnds(op.Value, uint64(n))
}

// plausible reports whether a completed operation is certainly correct; otherwise verify
// checks it in full. It is small enough to be inlined.
func plausible(op *kv.Op) bool {
	return op.Err == nil && (op.Kind != kv.OpRead || ownWord(op.Value, record.KeyNumber(op.Key)))
}

// ownWord reports whether value is the one-word value of record n.
func ownWord(value []byte, n uint64) bool {
	return len(value) == 8 && binary.LittleEndian.Uint64(value) == record.Word(n, 0)
}

// verify returns an error if a completed operation is wrong.
func (w *worker) verify(op *kv.Op) error {
	if op.Err != nil {
		return fmt.Errorf("storebench: record %d: %w", record.KeyNumber(op.Key), op.Err)
	}
	if op.Kind == kv.OpRead {
		return w.check(op.Value, record.KeyNumber(op.Key))
	}
	return nil
}

// explain is verify for plain calls.
func (w *worker) explain(value []byte, n uint64, err error) error {
	if err != nil {
		return fmt.Errorf("storebench: record %d: %w", n, err)
	}
	return w.check(value, n)
}

// check returns an error if the ends of value are not those of record n's.
func (w *worker) check(value []byte, n uint64) error {
	if record.EndsMatch(value, n, w.valueSize) {
		return nil
	}
	return fmt.Errorf("storebench: record %d has a wrong value, of %d bytes", n, len(value))
}

// plain makes one call per number. Each kind has a separate loop: the fewer instructions lie
// between calls, the more of them the processor overlaps.
func (w *worker) plain(k kinds, numbers []uint32) error {
	switch {
	case k.mixed:
		return w.plainMix(k, numbers)
	case k.kind == kv.OpRead:
		return w.plainReads(numbers)
	case k.kind == kv.OpUpsert:
		return w.plainUpserts(numbers)
	default:
		return w.plainRMWs(numbers)
	}
}

func (w *worker) plainReads(numbers []uint32) error {
	if w.valueSize == 8 {
		return w.plainWordReads(numbers)
	}
	session, key, buffer := w.session, (*[ycsb.KeySize]byte)(w.key), w.value[:0]
	for _, n := range numbers {
		record.PutKey(key[:], uint64(n))
		value, err := session.Read(key[:], buffer)
		if err = w.explain(value, uint64(n), err); err != nil {
			return err
		}
	}
	return nil
}

// plainWordReads is plainReads with a buffer size known to the compiler.
func (w *worker) plainWordReads(numbers []uint32) error {
	session, key, buffer := w.session, (*[ycsb.KeySize]byte)(w.key), (*[8]byte)(w.value)
	for _, n := range numbers {
		record.PutKey(key[:], uint64(n))
		value, err := session.Read(key[:], buffer[:0])
		if err != nil || !ownWord(value, uint64(n)) {
			if err = w.explain(value, uint64(n), err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *worker) plainUpserts(numbers []uint32) error {
	session, key, value := w.session, (*[ycsb.KeySize]byte)(w.key), w.value
	for _, n := range numbers {
		record.PutKey(key[:], uint64(n))
		record.StampEnds(value, uint64(n))
		if err := session.Upsert(key[:], value); err != nil {
			return w.explain(nil, uint64(n), err)
		}
	}
	return nil
}

func (w *worker) plainRMWs(numbers []uint32) error {
	if w.valueSize == 8 {
		return w.plainWordRMWs(numbers)
	}
	session, key, modify := w.session, (*[ycsb.KeySize]byte)(w.key), w.rmw.Modify
	for _, n := range numbers {
		record.PutKey(key[:], uint64(n))
		if err := session.RMW(key[:], modify); err != nil {
			return w.explain(nil, uint64(n), err)
		}
	}
	return nil
}

// plainWordRMWs is plainRMWs for one-word values.
func (w *worker) plainWordRMWs(numbers []uint32) error {
	session, key, modify := w.session, (*[ycsb.KeySize]byte)(w.key), w.rmwWord
	for _, n := range numbers {
		record.PutKey(key[:], uint64(n))
		if err := session.RMWWord(key[:], modify); err != nil {
			return w.explain(nil, uint64(n), err)
		}
	}
	return nil
}

func (w *worker) plainMix(k kinds, numbers []uint32) error {
	session, key, value, coins := w.session, (*[ycsb.KeySize]byte)(w.key), w.value, w.coins.Uint64()
	for _, n := range numbers {
		record.PutKey(key[:], uint64(n))
		if k.next(&coins) == kv.OpUpsert {
			record.StampEnds(value, uint64(n))
			if err := session.Upsert(key[:], value); err != nil {
				return w.explain(nil, uint64(n), err)
			}
			continue
		}
		got, err := session.Read(key[:], value[:0])
		if err != nil || !ownWord(got, uint64(n)) {
			if err = w.explain(got, uint64(n), err); err != nil {
				return err
			}
		}
	}
	return nil
}

// batch runs the numbers as one batch.
func (w *worker) batch(k kinds, numbers []uint32) error {
	coins := w.coins.Uint64()
	for i, n := range numbers {
		w.set(&w.ops[i], k.next(&coins), n)
	}
	if err := w.session.Do(context.Background(), w.ops); err != nil {
		return fmt.Errorf("storebench: batch: %w", err)
	}
	for i := range w.ops {
		if op := &w.ops[i]; !plausible(op) {
			if err := w.verify(op); err != nil {
				return err
			}
		}
	}
	return nil
}

// async submits an operation per number. It returns with as many operations pending as there
// is room for.
func (w *worker) async(k kinds, numbers []uint32) error {
	coins := w.coins.Uint64()
	for _, n := range numbers {
		for len(w.free) == 0 {
			if err := w.poll(); err != nil {
				return err
			}
		}
		next := w.free[len(w.free)-1]
		w.free = w.free[:len(w.free)-1]
		w.set(next, k.next(&coins), n)
		if err := w.session.Submit(next); err != nil {
			return fmt.Errorf("storebench: submit: %w", err)
		}
	}
	return nil
}

// poll takes completed operations; if there are none, it waits.
func (w *worker) poll() error {
	n := w.session.Poll(w.done)
	for _, op := range w.done[:n] {
		if !plausible(op) {
			if err := w.verify(op); err != nil {
				return err
			}
		}
		w.free = append(w.free, op)
	}
	if n > 0 {
		return nil
	}
	if err := w.session.Wait(context.Background()); err != nil {
		return fmt.Errorf("storebench: waiting: %w", err)
	}
	return nil
}

// generate is batch without the store. It measures the overhead that the figures of all cells
// include. The values it checks need not be those of the records.
func (w *worker) generate(k kinds, numbers []uint32) error {
	coins := w.coins.Uint64()
	for i, n := range numbers {
		w.set(&w.ops[i], k.next(&coins), n)
	}
	for i := range w.ops {
		if !plausible(&w.ops[i]) {
			w.implausible++
		}
	}
	return nil
}
