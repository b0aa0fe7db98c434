package kv

import (
	"fmt"

	"github.com/redykv/redykv/hlog"
)

// outcome is how an attempt in memory ended.
type outcome uint8

const (
	complete    outcome = iota // op has its result
	needsRecord                // the record at coldAt decides, on the device
	needsSpace                 // the log has no room: leave the epoch, wait, try again
	again                      // somebody else is in between: leave the epoch, try again
)

// coldAt is a record on the device, and the index entry through which it was
// found.
type coldAt struct {
	entry   entry
	address int64
}

// lookup walks a chain through memory, from the newest record down to floor,
// and returns the record of the key. If there is none, next is where the chain
// goes on: below floor, or 0 at its end.
func (s *Session) lookup(key []byte, from, floor int64) (r hlog.Record, address, next int64, found bool) {
	for next = from; next >= floor && next != 0; {
		r = s.log.At(next)
		if s.layout.KeyEqual(r, key) {
			return r, next, 0, true
		}
		next = r.Header().Previous()
	}
	return hlog.Record{}, 0, next, false
}

func (s *Session) tryRead(op *Op, hash uint64, keep int) (outcome, coldAt) {
	e := s.index.find(hash)
	r, _, next, found := s.lookup(op.Key, e.address(), s.log.Head())
	switch {
	case found:
		value, h := s.layout.AppendValue(op.Value[:keep], r)
		if h.Tombstone() {
			op.Value, op.Err = op.Value[:keep], ErrNotFound
		} else {
			op.Value = value
		}
	case next >= s.log.Begin():
		return needsRecord, coldAt{e, next}
	default:
		op.Value, op.Err = op.Value[:keep], ErrNotFound
	}
	return complete, coldAt{}
}

// tryUpsert updates in place what is mutable, and appends otherwise. It need not
// seal what it replaces: an update in place that still goes on there began
// before the new record was published, and counts as before it.
func (s *Session) tryUpsert(op *Op, hash uint64) outcome {
	for {
		slot, e, err := s.index.findOrInsert(hash)
		if err != nil {
			op.Err = err
			return complete
		}
		r, _, _, found := s.lookup(op.Key, e.address(), s.log.ReadOnly())
		if found && s.storeInPlace(r, op.Value) {
			return complete
		}
		if result, ok := s.appendRecord(slot, e, op.Key, op.Value, false); ok {
			return result
		}
	}
}

func (s *Session) storeInPlace(r hlog.Record, value []byte) bool {
	if s.layout.WordValues() {
		if r.Header().Tombstone() {
			return false
		}
		s.layout.StoreWord(r, value)
		return true
	}
	h, ok := r.Lock()
	if !ok {
		return false
	}
	if !s.layout.Store(r, value) {
		r.UnlockUnchanged(h)
		return false
	}
	r.Unlock(h)
	return true
}

// tryDelete buries what is mutable, and appends a tombstone otherwise; blind,
// as tryUpsert.
func (s *Session) tryDelete(op *Op, hash uint64) outcome {
	for {
		e := s.index.find(hash)
		if e.address() == 0 {
			return complete // no record of that tag at all
		}
		r, _, _, found := s.lookup(op.Key, e.address(), s.log.ReadOnly())
		if found && (r.Header().Tombstone() || r.Bury()) {
			return complete
		}
		slot, e, err := s.index.findOrInsert(hash)
		if err != nil {
			op.Err = err
			return complete
		}
		s.fresh = append(s.fresh[:0], make([]byte, s.store.opts.ValueSize)...)
		if result, ok := s.appendRecord(slot, e, op.Key, s.fresh, true); ok {
			return result
		}
	}
}

// tryRMW modifies in place what is mutable; otherwise it copies the modified
// value to the tail.
func (s *Session) tryRMW(op *Op, hash uint64) (outcome, coldAt) {
	slot, e, err := s.index.findOrInsert(hash)
	if err != nil {
		op.Err = err
		return complete, coldAt{}
	}
	r, address, next, found := s.lookup(op.Key, e.address(), s.log.Head())
	switch {
	case found:
		return s.modify(op, slot, e, r, address), coldAt{}
	case next >= s.log.Begin():
		return needsRecord, coldAt{e, next}
	default:
		return s.replace(op, slot, e, nil, false), coldAt{}
	}
}

// modify is RMW on a record in memory. The Modifier runs on a copy, outside any
// lock; the lock is then taken only if the value is still the one it saw.
func (s *Session) modify(op *Op, slot slot, e entry, r hlog.Record, address int64) outcome {
	readOnly := address < s.log.ReadOnly()
	if readOnly && address >= s.log.SafeReadOnly() {
		// A session that entered before the marker moved may still update it in
		// place. It will have left in a moment.
		return again
	}
	old, h := s.layout.AppendValue(s.old[:0], r)
	s.old = old
	switch {
	case h.Tombstone():
		return s.replace(op, slot, e, nil, false)
	case readOnly:
		// Nobody changes it. It may even be sealed: by a replacement that was
		// never committed, before the store was opened again.
		return s.replace(op, slot, e, old, true)
	case h.Sealed():
		return again // its replacement is being published
	}
	if err := s.compute(op, old, true); err != nil {
		op.Err = err
		return complete
	}
	if s.layout.WordValues() {
		if !s.layout.SwapWord(r, old, s.fresh) {
			return again
		}
		return complete
	}
	if r.LockIf(h) {
		if s.layout.Store(r, s.fresh) {
			r.Unlock(h)
			return complete
		}
		r.UnlockUnchanged(h)
	}
	// Too long for its place, or out of versions: seal it, so that no update in
	// place is lost between here and the new record.
	if !r.SealIf(h) {
		return again
	}
	result, ok := s.appendRecord(slot, e, op.Key, s.fresh, false)
	if !ok {
		result = again
	}
	if result != complete {
		r.Unseal(h)
	}
	return result
}

// replace appends what the Modifier makes of old, which nobody changes any
// more.
func (s *Session) replace(op *Op, slot slot, e entry, old []byte, found bool) outcome {
	if err := s.compute(op, old, found); err != nil {
		op.Err = err
		return complete
	}
	result, ok := s.appendRecord(slot, e, op.Key, s.fresh, false)
	if !ok {
		return again
	}
	return result
}

// compute puts the modified value into s.fresh.
func (s *Session) compute(op *Op, old []byte, found bool) error {
	s.fresh = op.Modify(s.fresh[:0], old, found)
	return s.checkSizes(len(op.Key), len(s.fresh))
}

// appendRecord puts a record at the tail and makes it the newest of its chain.
// ok is false where the chain has got another one since e was read.
func (s *Session) appendRecord(slot slot, e entry, key, value []byte, tombstone bool) (result outcome, ok bool) {
	address, ok := s.log.Allocate(s.layout.Size(len(key), len(value)))
	if !ok {
		return needsSpace, true
	}
	r := s.log.At(address)
	s.layout.Fill(r, hlog.NewHeader(e.address(), tombstone), key, value)
	if !slot.swap(e, e.at(address)) {
		r.Invalidate()
		return again, false
	}
	return complete, true
}

// corrupt says what is wrong with a record that came from the device.
func corrupt(address int64, format string, args ...any) error {
	return fmt.Errorf("%w: record at %d: %s", ErrCorrupt, address, fmt.Sprintf(format, args...))
}
