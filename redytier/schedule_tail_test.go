package redytier

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/redykv/redykv/device"
)

// scheduleTail is what the cache may hold beyond the workers' words, which a Reshape adds and
// cuts off. Added words are zero, whatever was there before.
type scheduleTail struct {
	turn  chan struct{} // holds a token while no Reshape runs, which guards the fields below
	words [][]uint64    // written since the word was added, from the end of the workers' words on; besides 0
	seq   uint32
}

func newScheduleTail() scheduleTail {
	t := scheduleTail{turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
	return t
}

// checkTail reads what is beyond the workers' words after a Reshape, and writes other values.
func (p *schedulePlay) checkTail() {
	t, from := &p.tail, p.setup.capacity
	n := int(p.cache.Capacity()-from) / 8
	if n < len(t.words) {
		t.words = t.words[:n]
	}
	for len(t.words) < n {
		t.words = append(t.words, nil)
	}
	if n == 0 {
		return
	}
	session, err := p.cache.NewSession(2)
	if err != nil {
		p.note("a session for the tail: %v", err)
		return
	}
	w := &scheduleWorker{schedulePlay: p, session: session, pending: map[uint64]*scheduleOp{}}
	defer w.close()
	first := int(from / 8)
	t.seq++
	read, write := &scheduleOp{word: first, buf: make([]byte, 8*n)}, &scheduleOp{word: first, buf: make([]byte, 8*n), write: true}
	for i := range t.words {
		binary.LittleEndian.PutUint64(write.buf[8*i:], wordValue(first+i, t.seq))
	}
	w.ops = []*scheduleOp{read, write}
	for tag, op := range w.ops {
		do := session.Read
		if op.write {
			do = session.Write
		}
		err := do(op.buf, from, uint64(tag))
		if errors.Is(err, device.ErrQueueFull) { // a region in the way of the read
			w.drain()
			err = do(op.buf, from, uint64(tag))
		}
		if err != nil {
			p.fail("%v beyond the workers' words: %v", op, err)
			return
		}
		w.pending[uint64(tag)] = op
	}
	if w.drain(); !p.fine() {
		return
	}
	for i := range t.words {
		v := binary.LittleEndian.Uint64(read.buf[8*i:])
		isCopy := p.setup.recovers && v == wordValue(first+i, wordOfCopy)
		if read.err == nil && v != 0 && !isCopy && !slices.Contains(t.words[i], v) {
			p.fail("word at %d, beyond the workers' words, is %#x, want 0 or one of %#x", 8*(first+i), v, t.words[i])
			return
		}
		t.words[i] = append(t.words[i], wordValue(first+i, t.seq))
	}
}
