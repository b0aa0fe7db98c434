//go:build verbs && linux && cgo

package verbs

import (
	"maps"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// keysOf returns how many times a region is registered for peers, and the number of its loans.
func keysOf(r *region) (keys, loans int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys), len(r.loans)
}

// A region is registered once for all connections of a process. It stays registered for a while
// after the last of them has ended, so that a process whose connections break and that connects
// again does not cost another registration.
func TestSharedKey(t *testing.T) {
	server, addr, _ := host(t, 4)
	server.domains.linger = time.Hour
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
	got := []byte{0}
	r.Bytes()[5] = 7
	check(t, b.Read(got, inB, 5, 1))
	check(t, b.Submit())
	if c := next(t, b); c.Err != nil || got[0] != 7 {
		t.Errorf("read %d over the connection that has the region: %+v", got[0], c)
	}

	check(t, a.Close())
	check(t, b.Close())
	check(t, other.Close())
	await(2, 0)
	r.mu.Lock()
	before := maps.Clone(r.keys)
	r.mu.Unlock()
	again := dial(t, client, addr, 4)
	_, err = again.Import(within(t), r.Token())
	check(t, err)
	await(2, 1)
	r.mu.Lock()
	same := maps.Equal(r.keys, before)
	r.mu.Unlock()
	if !same {
		t.Error("a process that connects again had the region registered anew")
	}
	check(t, r.Close())
	await(0, 0)
}

// A domain whose last connection has ended ends later, with the registrations there.
func TestDomainEnds(t *testing.T) {
	server, addr, accepted := host(t, 4)
	domains := &server.domains
	domains.linger = time.Millisecond
	m, err := server.Alloc(1 << 20)
	check(t, err)
	client := open(t)
	q := dial(t, client, addr, 4)
	_, err = q.Import(within(t), m.Token())
	check(t, err)
	check(t, q.Close())
	check(t, testrun.Receive(t, "the listener's end", accepted).Close())
	testrun.Until(t, "the domain ends", func() bool {
		domains.mu.Lock()
		defer domains.mu.Unlock()
		return len(domains.byID) == 0
	})
	domains.ending.Wait()
	if keys, loans := keysOf(m.(*region)); keys+loans > 0 || domains.err != nil {
		t.Errorf("%d keys and %d loans without connections: %v", keys, loans, domains.err)
	}
}
