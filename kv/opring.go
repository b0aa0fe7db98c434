package kv

// opRing is a first-in, first-out queue of operations with a fixed capacity.
type opRing struct {
	ops        []*Op
	head, used int
}

func newOpRing(capacity int) opRing { return opRing{ops: make([]*Op, capacity)} }

func (r *opRing) len() int { return r.used }

// push adds an operation; there is room.
func (r *opRing) push(op *Op) {
	at := r.head + r.used
	if at >= len(r.ops) {
		at -= len(r.ops)
	}
	r.ops[at] = op
	r.used++
}

// pop takes the oldest; there is one.
func (r *opRing) pop() *Op {
	op := r.ops[r.head]
	r.ops[r.head] = nil
	if r.head++; r.head == len(r.ops) {
		r.head = 0
	}
	r.used--
	return op
}
