package kv

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestPool checks that calls of the store share a bounded number of sessions, wait for one in
// the order of arrival, and leave few open. Calls that always get a session do not wait.
func TestPool(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	st.pool.after = time.Millisecond
	begin := make([]chan struct{}, maxLent)
	var wg sync.WaitGroup
	var inside sync.WaitGroup
	for i := range begin {
		begin[i] = make(chan struct{})
		inside.Add(1)
		wg.Go(func() {
			if err := st.with(context.Background(), func(s *Session) error {
				inside.Done()
				<-begin[i]
				return s.Upsert(key8(uint64(i)), key8(1))
			}); err != nil {
				t.Error(err)
			}
		})
	}
	inside.Wait()
	const waiters = 10
	var order []int
	waiting := func() int {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.pool.waiting)
	}
	for i := range waiters {
		wg.Go(func() {
			if err := st.with(context.Background(), func(s *Session) error {
				order = append(order, i) // calls run one after the other, in one session
				_, err := s.Read(key8(0), nil)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
		testrun.Until(t, fmt.Sprintf("%d calls wait", i+1), func() bool { return waiting() > i })
	}
	if err := st.withAny(func(s *Session) error { return s.Upsert(key8(0), key8(1)) }); err != nil {
		t.Error(err)
	}
	if n := st.Metrics().Sessions.Open; n != maxLent+1 {
		t.Errorf("%d sessions, want %d that are lent and another", n, maxLent)
	}
	close(begin[0])
	testrun.Until(t, "no call waits", func() bool { return waiting() == 0 })
	for _, c := range begin[1:] {
		close(c)
	}
	wg.Wait()
	for i, n := range order {
		if n != i {
			t.Errorf("they had their turns in the order %v", order)
			break
		}
	}
	testrun.Until(t, "the other sessions are closed", func() bool { return st.Metrics().Sessions.Open <= keepIdle })
	if n := st.Metrics().Operations.Upserts; n != maxLent+1 {
		t.Errorf("%d upserts counted, want %d", n, maxLent+1)
	}
	closeAll(t, st)
}

// TestLentSessionsAreEmpty: operations that a caller of Atomically has submitted and not polled are not those of
// the next caller.
func TestLentSessionsAreEmpty(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	defer closeAll(t, st)
	for n := range uint64(300) {
		if err := st.Atomically(t.Context(), [][]byte{key8(n)}, func(s *Session) error {
			if pending := s.Pending(); pending != 0 {
				t.Errorf("call %d: %d operations are pending", n, pending)
			}
			return s.Submit(&Op{Kind: OpUpsert, Key: key8(n), Value: key8(n)})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if n := liveKeys(t, st); n != 300 {
		t.Errorf("%d keys", n)
	}
}
