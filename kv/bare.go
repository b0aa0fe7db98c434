package kv

import "github.com/redykv/redykv/hlog"

// frozen is a bare record (see [hlog.Record]) that an operation has sealed, to
// do what a compare-and-swap of its value cannot: to delete it only if the value
// is what the Modifier saw, or to replace it by a record with an expiry. In steps,
// between which the session leaves its epoch:
//
//	a first attempt finds out that it is needed     asked
//	the next one seals the record                   address
//	everybody who could be updating it has left     quiet
//	a third one asks the Modifier about the value as it is now, its last
type frozen struct {
	asked   bool
	address int64
	quiet   bool
}

// modifyBare is modify for a bare record in the mutable region, whose value was
// old a moment ago.
func (s *Session) modifyBare(op *Op, at slot, e entry, r hlog.Record, address int64, old []byte) outcome {
	h := r.Header()
	mine := s.frozen.address == address
	if h.Tombstone() || h.Sealed() && !mine || mine && !s.frozen.quiet {
		return again
	}
	verdict, err := s.compute(op, old, 0, true)
	switch {
	case err != nil || verdict == Keep:
		op.Err = err
		return complete
	case verdict == Put && s.update.Expires == 0:
		if !s.layout.SwapWord(r, valueWord(old), valueWord(s.fresh)) {
			return again
		}
		return complete
	case !s.frozen.asked:
		return needsQuiet
	case !mine:
		if r.Seal(h) {
			s.frozen.address = address
			return needsQuiet
		}
		return again
	}
	if verdict == Remove {
		r.BurySealed()
		s.frozen = frozen{}
		s.recount(true, 0, verdict, 0)
		return complete
	}
	result, ok := s.appendRecord(at, e, op.Key, s.fresh, s.update.Expires, false)
	if !ok {
		return again
	}
	if result == complete {
		s.frozen = frozen{} // sealed for good
		s.recount(true, 0, verdict, s.update.Expires)
	}
	return result
}

// quieten takes the next step of freezing, outside the epoch. It does not wait for the
// epoch of a session within whose Modifier it is called.
func (s *Session) quieten() error {
	if s.frozen.address != 0 {
		if err := s.store.inModifier(); err != nil {
			return err
		}
		s.store.epoch.Wait(s.store.epoch.Bump())
		s.frozen.quiet = true
	}
	s.frozen.asked = true
	return nil
}

// thaw ends freezing when the operation has ended some other way.
func (s *Session) thaw() {
	s.enter()
	defer s.leave()
	s.thawWithin()
}

// thawWithin is thaw within an epoch.
func (s *Session) thawWithin() {
	// In the immutable region nobody minds a seal.
	if a := s.frozen.address; a >= s.readOnly && a != 0 {
		s.view.At(a).Unseal()
	}
	s.frozen = frozen{}
}
