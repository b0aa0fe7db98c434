package kv

import (
	"bytes"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// Three internal operations start from a record instead of a key. opNewest and opMove follow
// the chain from its newest record down to that record, the source, to see whether the key has
// a newer one. opNewest only checks that, for scans. opMove also copies the source to the
// tail, for compaction. Both return ErrNotFound if there is a newer record or the key does not
// exist any more. opLink reads the source, whatever its key, so that sweeps can follow chains.
// It returns ErrNotFound below the log's begin.
//
// Their order does not matter. They pass through lanes and pending operations like all others.

// trace holds the fields of such an Op besides the record's key, value and expiry. The source
// of an opMove is below the safe read-only address.
type trace struct {
	source int64 // the record's address
	lowest int64 // the chain is followed down to here: no record of the key lies between source and lowest
	below  int64 // records of the key at or above this address do not count as newer
	early  bool  // Value and Expires may be from before the source was read-only
	newer  bool  // Value and Expires are from the key's newest record, at or above below
	newest int64 // the key's newest record under below, if that is not the source
	head   int64 // the newest address of the chain that was followed

	header hlog.Header // result of opLink
}

// newTrace returns the trace of a record without any known bounds.
func newTrace(source, below int64) trace {
	return trace{source: source, lowest: source + 8, below: below}
}

func (s *Session) traceOf(op *Op) *trace { return &s.traces[op.trace-1] }

// tryTrace is one attempt inside an epoch.
func (s *Session) tryTrace(op *Op, at index.Place, e index.Entry) (outcome, coldRecord) {
	p := s.traceOf(op)
	if p.source < s.log.Begin() { // truncated; a live record has a copy at the tail
		op.Err = ErrNotFound
		return complete, coldRecord{}
	}
	p.newer, p.head = false, e.Address()
	next := e.Address()
	for next >= p.lowest {
		if next < s.view.head {
			begin := s.log.Begin()
			if next < begin { // the source is also below begin, so it was truncated
				op.Err = ErrNotFound
				return complete, coldRecord{}
			}
			return needsRecord, coldRecord{e, next, begin}
		}
		r := s.view.record(next)
		if s.layout.KeyEqual(r, op.Key) {
			if next < p.below {
				op.Err, p.newest = ErrNotFound, next
				return complete, coldRecord{}
			}
			if !p.newer && !s.takeNewer(op, r) {
				return complete, coldRecord{}
			}
			p.newer = true
		}
		next = r.Header().Previous()
	}
	switch {
	case !p.reaches(next):
		op.Err = ErrNotFound
	case op.Kind == opMove:
		return s.move(op, at, e), coldRecord{}
	case !p.newer && p.source >= s.view.head:
		s.takeNewer(op, s.view.record(p.source)) // it may have been updated in place
	case !p.newer && s.expired(op.Expires):
		// Its expiry may have been changed in place after it was read.
		if begin := s.log.Begin(); p.early && p.source >= begin {
			return needsRecord, coldRecord{e, p.source, begin}
		}
		op.Err = ErrNotFound
	}
	return complete, coldRecord{}
}

// reaches reports whether a chain that continues at next, below lowest, leads to the source.
func (p *trace) reaches(next int64) bool { return next == p.source || p.lowest > p.source+8 }

// takeNewer copies a record's value and expiry to the operation. It returns false if the
// record is not live.
func (s *Session) takeNewer(op *Op, r hlog.Record) bool {
	value, h, expires := s.layout.Read(op.Value[:0], r)
	op.Value, op.Expires = value, expires
	if h.Tombstone() || s.expired(expires) {
		op.Err = ErrNotFound
		return false
	}
	return true
}

// move appends a copy of the source, if the chain has not changed. The source is read-only, so
// it has not changed.
func (s *Session) move(op *Op, at index.Place, e index.Entry) outcome {
	if s.expired(op.Expires) {
		op.Err = ErrNotFound
		return complete
	}
	result, ok := s.appendRecord(at, e, op.Key, op.Value, op.Expires, false)
	if !ok {
		return retry
	}
	return result
}

// examineTrace is examine for an intact record, with the same result.
func (s *Session) examineTrace(n uint32, im hlog.Image, tier int) (goesOn bool) {
	f := &s.pending[n]
	op := f.op
	p := s.traceOf(op)
	if op.Kind == opLink {
		op.Key, op.Value = append(op.Key[:0], im.Key...), append(op.Value[:0], im.Value...)
		op.Expires, p.header = im.Expires, im.Header
		s.completePending(n, nil, tier)
		return false
	}
	if f.at.address == p.source {
		op.Value, op.Expires, p.early = append(op.Value[:0], im.Value...), im.Expires, false
		if im.Header.Tombstone() || s.expired(im.Expires) || !bytes.Equal(im.Key, op.Key) {
			s.completePending(n, ErrNotFound, tier)
		} else {
			s.completePending(n, nil, tier)
		}
		return false
	}
	if bytes.Equal(im.Key, op.Key) {
		if f.at.address < p.below {
			p.newest = f.at.address
			s.completePending(n, ErrNotFound, tier)
			return false
		}
		if !p.newer && (im.Header.Tombstone() || s.expired(im.Expires)) {
			s.completePending(n, ErrNotFound, tier)
			return false
		}
		if !p.newer {
			op.Value, op.Expires, p.newer = append(op.Value[:0], im.Value...), im.Expires, true
		}
	}
	switch previous := im.Header.Previous(); {
	case previous >= f.at.address:
		s.completePending(n, corrupt(f.at.address, "its link leads to %d", previous), 0)
	case previous >= p.lowest && previous >= f.at.begin:
		f.at.address = previous
		return true
	case previous >= p.lowest || !p.reaches(previous):
		s.completePending(n, ErrNotFound, tier)
	case !p.newer && p.early && s.expired(op.Expires):
		f.at.address = p.source
		return true
	case !p.newer && s.expired(op.Expires):
		s.completePending(n, ErrNotFound, tier)
	case op.Kind == opMove:
		// The chain has no other record of the key from its newest record down. Only records
		// that were appended since remain to be looked at.
		p.lowest = f.at.entry.Address() + 8
		s.restart(n, tier)
	default:
		s.completePending(n, nil, tier)
	}
	return false
}

// tryLink is one attempt at an opLink inside an epoch.
func (s *Session) tryLink(op *Op) (outcome, coldRecord) {
	p := s.traceOf(op)
	switch begin := s.log.Begin(); {
	case p.source < begin:
		op.Err = ErrNotFound
		return complete, coldRecord{}
	case p.source < s.view.head:
		return needsRecord, coldRecord{0, p.source, begin}
	}
	r := s.view.record(p.source)
	op.Key = append(op.Key[:0], s.layout.Key(r)...)
	op.Value, p.header, op.Expires = s.layout.Read(op.Value[:0], r)
	return complete, coldRecord{}
}

// doLinks is Do for opLinks. They need no place in the index, and so no lane.
func (s *Session) doLinks(ops []Op) error {
	s.flush()
	s.batchErr = nil
	s.allowDirect(false)
	for i := range ops {
		if s.begin(&ops[i], 0, 0, false) {
			s.noteError(ops[i].Err)
		}
	}
	if err := s.awaitBatch(); err != nil {
		return err
	}
	s.allowDirect(s.streamed == 0)
	return s.batchErr
}
