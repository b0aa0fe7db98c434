package kv

import (
	"context"
	"errors"
	"fmt"
)

// play has a session do a batch, and checks what comes of each operation. An
// operation may fail with an error that mayFail knows, and has no effect then.
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
	switch b.mode {
	case "plain":
		for i := range ops {
			ops[i].Err = plainly(ms.s, &ops[i])
		}
	case "do":
		// Each operation has its own error.
		if err := ms.s.Do(ops); err != nil && !errors.Is(err, ErrExists) && !mayFail(err) {
			return fmt.Errorf("session %d: %w", b.session, err)
		}
	case "stream":
		if err := stream(ms.s, ops); err != nil {
			return fmt.Errorf("session %d: %w", b.session, err)
		}
	}
	if given := uint64(len(ms.history) + len(ops)); ms.s.Serial() != given {
		return fmt.Errorf("session %d counts %d operations, was given %d", b.session, ms.s.Serial(), given)
	}
	return p.check(ms, b, ops, saw, now, mayFail)
}

// version is what a key holds from an operation on.
type version struct {
	from int
	sight
}

// check applies a batch to the session's state and history, and compares what was
// seen with it.
func (p *player) check(ms *modelSession, b modelBatch, ops []Op, saw []sight, now int64, mayFail func(error) bool) error {
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
		ms.history = append(ms.history, modelEntry{o, now, failed})
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
				// A batch's reads may miss writes that come later, or not.
				if v.from > i && b.mode != "plain" && saw[i] == v.sight {
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
	return nil
}

// plainly does an operation by a plain call, where there is one for it.
func plainly(s *Session, op *Op) (err error) {
	switch {
	case op.Expires != 0 || op.InPlace != nil:
		return s.Run(op)
	case op.Kind == OpRead:
		return s.Run(op) // which tells the expiry
	case op.Kind == OpUpsert:
		return s.Upsert(op.Key, op.Value)
	case op.Kind == OpInsert:
		return s.Insert(op.Key, op.Value)
	case op.Kind == OpRMW:
		return s.RMW(op.Key, op.Modify)
	}
	return s.Delete(op.Key)
}

// stream submits operations, and polls until all have come back.
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
