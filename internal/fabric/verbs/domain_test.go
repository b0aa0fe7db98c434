//go:build verbs && linux && cgo

package verbs

import (
	"testing"
	"time"
)

// keysOf returns how many times a region is registered for peers, and the number of its loans.
func keysOf(r *region) (keys, loans int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.keys {
		loans += k.loans
	}
	return len(r.keys), loans
}

// A region is registered once for all connections of a process, and stays registered until the
// last of them has given it back.
func TestSharedKey(t *testing.T) {
	server, addr, _ := host(t, 4)
	m, err := server.Alloc(1 << 20)
	check(t, err)
	r := m.(*region)
	client := open(t)
	a, b, other := dial(t, client, addr, 4), dial(t, client, addr, 4), dial(t, open(t), addr, 4)
	await := func(keys, loans int) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			k, l := keysOf(r)
			if k == keys && l == loans {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d keys for %d loans, want %d for %d", k, l, keys, loans)
			}
		}
	}
	inA, err := a.Import(within(t), r.Token())
	check(t, err)
	inB, err := b.Import(within(t), r.Token())
	check(t, err)
	await(1, 2)
	_, err = other.Import(within(t), r.Token())
	check(t, err)
	await(2, 3)
	a.Release(inA)
	await(2, 2)
	check(t, other.Close())
	await(1, 1)
	got := []byte{0}
	r.Bytes()[5] = 7
	check(t, b.Read(got, inB, 5, 1))
	check(t, b.Submit())
	if c := next(t, b); c.Err != nil || got[0] != 7 {
		t.Errorf("read %d over the connection that has the region: %+v", got[0], c)
	}
	check(t, a.Close())
	check(t, b.Close())
	await(0, 0)
	if n := len(client.domains.byID); n != 0 {
		t.Errorf("%d protection domains without connections", n)
	}
}
