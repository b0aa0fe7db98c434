package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// play executes a batch in a session, and checks the result of each operation. An operation
// may fail with an error that mayFail accepts, and then has no effect.
func (p *player) play(b modelBatch, mayFail func(error) bool) error {
	if b.session >= len(p.sessions) {
		return nil
	}
	ms := p.sessions[b.session]
	now := p.clock.Load()
	ops, saw := make([]Op, len(b.ops)), make([]sight, len(b.ops))
	for i, o := range b.ops {
		ops[i] = p.rules.op(o, now, &saw[i])
	}
	var err error
	if mode, locked := b.locked(); locked {
		var keys [][]byte
		for i := range ops {
			keys = append(keys, ops[i].Key)
		}
		err = ms.s.Atomically(context.Background(), keys, func() error { return give(ms.s, mode, ops) })
	} else {
		err = give(ms.s, mode, ops)
	}
	if err != nil && !mayFail(err) {
		return fmt.Errorf("session %d: %w", b.session, err)
	}
	if given := uint64(len(ms.history) + len(ops)); ms.s.Serial() != given {
		return fmt.Errorf("session %d counts %d operations, was given %d", b.session, ms.s.Serial(), given)
	}
	return p.check(ms, b, ops, saw, now, mayFail)
}

// locked reports whether the batch runs with its keys locked, and returns the mode without
// that prefix.
func (b modelBatch) locked() (mode string, is bool) { return strings.CutPrefix(b.mode, "locked-") }

// give executes operations in a mode. Each operation has its own error.
func give(s *Session, mode string, ops []Op) error {
	switch mode {
	case "plain":
		for i := range ops {
			ops[i].Err = plainly(s, &ops[i])
		}
	case "do":
		if err := s.Do(context.Background(), ops); err != nil {
			return err
		}
	case "stream":
		return stream(s, ops)
	default:
		return fmt.Errorf("what is %q?", mode)
	}
	return nil
}

// version is the cell of a key from an operation on.
type version struct {
	from int
	sight
}

// check applies a batch to the session's state and history, and compares the results with
// them.
func (p *player) check(ms *modelSession, b modelBatch, ops []Op, saw []sight, now int64, mayFail func(error) bool) error {
	mode, locked := b.locked()
	before := make([]sight, len(ops))
	versions := map[uint64][]version{}
	for i, o := range b.ops {
		err := ops[i].Err
		expected := err == nil || o.kind == modelInsert && errors.Is(err, ErrExists) ||
			(o.kind == modelRead || o.kind == modelSum) && errors.Is(err, ErrNotFound)
		failed := !expected && mayFail(err)
		if !expected && !failed {
			return fmt.Errorf("session %d: operation %d, %v: %w", b.session, i, o, err)
		}
		ms.history = append(ms.history, modelEntry{o, now, failed, locked, locked && i > 0})
		if failed || o.key >= p.keys {
			continue
		}
		before[i].cell, before[i].found = p.rules.apply(ms.state, o, now)
		after, found := ms.state.get(o.key, now)
		versions[o.key] = append(versions[o.key], version{i, sight{after, found}})
	}
	for i, o := range b.ops {
		op := &ops[i]
		if ms.history[len(ms.history)-len(ops)+i].none || o.key >= p.keys {
			continue
		}
		var wrong bool
		switch o.kind {
		case modelRead:
			saw[i] = sight{modelCell{string(op.Value), op.Expires}, op.Err == nil}
			if op.Err != nil {
				saw[i] = sight{}
			}
			wrong = saw[i] != before[i]
			for _, v := range versions[o.key] {
				// A read of a batch may or may not see later writes.
				if v.from > i && mode != "plain" && saw[i] == v.sight {
					wrong = false
				}
			}
		case modelInsert:
			saw[i].found = op.Err != nil
			wrong = saw[i].found != before[i].found
		case modelModify, modelInPlace, modelKeep, modelRemove:
			if saw[i].cell.expires == unseen {
				saw[i].cell.expires = before[i].cell.expires
			}
			wrong = saw[i] != before[i]
		}
		if wrong {
			return fmt.Errorf("session %d: operation %d, %v, saw %v; want %v", b.session, i, o, saw[i], before[i])
		}
	}
	if locked {
		return p.checkCounters(b, ops, saw, mode)
	}
	return nil
}

// checkCounters compares the results on locked counters: no other session may have changed
// them in between.
func (p *player) checkCounters(b modelBatch, ops []Op, saw []sight, mode string) error {
	known := modelState{}
	for i, o := range b.ops {
		is := saw[i].cell.value
		switch {
		case o.key < p.keys:
			continue
		case ops[i].Err != nil && !errors.Is(ops[i].Err, ErrNotFound):
			delete(known, o.key)
			continue
		case o.kind == modelSum:
			if is = string(ops[i].Value); mode != "plain" {
				continue // it may or may not see later ones
			}
		}
		if c, ok := known[o.key]; ok && c.value != is {
			return fmt.Errorf("session %d: operation %d, %v, of locked keys: %x, want %x", b.session, i, o, is, c.value)
		}
		if o.kind == modelCount {
			is = string(p.rules.count(nil, []byte(is), o.seed))
		}
		known[o.key] = modelCell{value: is}
	}
	return nil
}

// plainly executes an operation by its plain call, if there is one.
func plainly(s *Session, op *Op) (err error) {
	switch {
	case op.Expires != 0 || op.InPlace != nil:
		return s.Run(op)
	case op.Kind == OpRead:
		if value, ok := s.readDirect(op.Key, op.Value[:0]); ok { // only for records without an expiry
			op.Value, op.Expires = value, 0
			return nil
		}
		return s.Run(op) // Run returns the expiry
	case op.Kind == OpUpsert:
		return s.Upsert(op.Key, op.Value)
	case op.Kind == OpInsert:
		return s.Insert(op.Key, op.Value)
	case op.ModifyWord != nil:
		return s.RMWWord(op.Key, op.ModifyWord)
	case op.Kind == OpRMW:
		return s.RMW(op.Key, op.Modify)
	}
	return s.Delete(op.Key)
}

// stream submits operations, and polls until all have been handed back.
func stream(s *Session, ops []Op) error {
	var done [4]*Op
	returned := 0
	for i := 0; i < len(ops) || s.Pending() > 0; {
		if i < len(ops) {
			err := s.Submit(&ops[i])
			if err == nil {
				i++
				continue
			}
			if !errors.Is(err, ErrQueueFull) {
				return err
			}
		}
		if err := s.Wait(context.Background()); err != nil {
			return err
		}
		returned += s.Poll(done[:])
	}
	if returned != len(ops) {
		return fmt.Errorf("%d of %d operations came back", returned, len(ops))
	}
	return nil
}
