//go:build verbs && linux && cgo

package verbs

import (
	"testing"
)

// Operations that must not overtake a read wait for it: a write to its bytes, and any
// operation that notifies the peer. Other writes do not wait.
func TestFences(t *testing.T) {
	const size = 1 << 20
	server, addr, accepted := host(t, 8)
	q := dial(t, open(t), addr, 8)
	there := <-accepted
	far, err := server.Alloc(size)
	check(t, err)
	i, err := q.Import(within(t), far.Token())
	check(t, err)
	r := **q.imports.Get(i.Handle)
	slot := func(offset int64) uint64 { return hazardSlot((r.address + uint64(offset)) >> hazardPage) }
	elsewhere := int64(size / 2)
	for slot(elsewhere) == slot(0) { // would look like a hazard
		elsewhere += 1 << hazardPage
	}
	buf := make([]byte, 64)
	check(t, q.Write(buf, i, 0, 0))
	check(t, q.Read(buf, i, 0, 1))
	check(t, q.Write(buf, i, elsewhere, 2))
	check(t, q.Write(buf, i, 32, 3))
	check(t, q.WriteImm(nil, i, 0, 7, 4))
	check(t, q.WriteImm(buf, i, elsewhere, 8, 5))
	check(t, q.Submit())
	fenced := []bool{false, false, false, true, true, true}
	if len(q.pipe.ops) != len(fenced) {
		t.Fatalf("%d work requests", len(q.pipe.ops))
	}
	for i, op := range q.pipe.ops {
		if (op.kind&opFenced != 0) != fenced[i] {
			t.Errorf("operation %d: kind %#x, want it fenced: %v", i, op.kind, fenced[i])
		}
	}
	for tag := range uint64(len(fenced)) {
		if c := next(t, q); c.Err != nil || c.Tag != tag {
			t.Fatalf("completion %+v, want %d", c, tag)
		}
	}
	for imm := range uint32(2) {
		if c := next(t, there); c.Imm != imm+7 {
			t.Fatalf("heard %+v", c)
		}
	}
	// Without a pending read nothing waits.
	check(t, q.WriteImm(buf, i, 0, 9, 6))
	check(t, q.Submit())
	if q.pipe.ops[0].kind&opFenced != 0 {
		t.Error("fenced behind no read")
	}
	if c := next(t, q); c.Err != nil {
		t.Fatalf("%+v", c)
	}
}
