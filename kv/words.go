package kv

import "unsafe"

// Records of 8-byte keys and values are the most common ones of which there are
// very many, and so small that every instruction shows: for them tryAt's most
// frequent cases are written out here, on words instead of slices.

// loadWord are 8 bytes as a word.
func loadWord(b []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }

// valueWord is a value of up to 8 bytes as a word, as it lies in the log.
func valueWord(value []byte) (word uint64) {
	if len(value) == 8 {
		return loadWord(value)
	}
	copy((*[8]byte)(unsafe.Pointer(&word))[:], value)
	return word
}

// finishWords carries the lane's operations out, from its next one on, up to the first
// that is not such a case of tryAt: that one has changed no record, but its Modifier may
// have been asked, and will be again. A record is the newest of its chain, and in memory.
// One loop for all of them, since a call for each took a third more time.
func (s *Session) finishWords(l *lane) {
	for i := l.next; i < l.n; i++ {
		op, at := l.ops[i&(laneSize-1)], l.slots[i&(laneSize-1)]
		if at.p == nil {
			return
		}
		a := at.load().address()
		if a < s.view.head || len(op.Key) != 8 {
			return
		}
		r := s.view.record(a)
		if r.Word0() != loadWord(op.Key) {
			return
		}
		if op.Err != nil { // of what it was used for before
			op.Err = nil
		}
		switch op.Kind {
		case OpRead:
			if !r.Header().Plain() || cap(op.Value) < 8 {
				return
			}
			op.Value = op.Value[:8] // which stores no pointer
			*(*uint64)(unsafe.Pointer(unsafe.SliceData(op.Value))) = r.Word1()
			op.Expires = 0
		case OpUpsert:
			if !s.view.mutable(a) || op.Expires != 0 || len(op.Value) != 8 || !s.layout.StoreWord(r, loadWord(op.Value)) {
				return
			}
		case OpRMW:
			if !s.view.mutable(a) || !r.Header().Updatable() {
				return
			}
			l.next = i + 1 // for abandon: the Modifier may panic
			old, fresh, verdict := r.Word1(), uint64(0), Keep
			if op.ModifyWord != nil {
				fresh, verdict = op.ModifyWord(old, true)
			} else if op.Modify != nil {
				fresh, verdict = s.modifyWord(op.Modify, old)
			}
			if verdict != Put || !r.SwapWord1(old, fresh) {
				l.next = i
				return
			}
		default:
			return
		}
		s.counts.ops[op.Kind].inc()
		l.next = i + 1
		if l.stream {
			s.streamed--
			s.polled.push(op)
		}
	}
}

// modifyWord asks a Modifier as if it were a WordModifier of a value that is there. Keep
// stands for whatever only a Modifier can want: the general way asks it again.
func (s *Session) modifyWord(modify Modifier, old uint64) (fresh uint64, verdict Verdict) {
	s.oldWord = old
	*s.update = s.form
	u := s.update
	if modify(u) != Put || u.Expires != 0 || len(u.New) != 8 {
		return 0, Keep
	}
	return loadWord(u.New), Put
}

// word are the bytes of a word.
func word(p *uint64) []byte { return (*[8]byte)(unsafe.Pointer(p))[:] }
