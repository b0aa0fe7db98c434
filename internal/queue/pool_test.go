package queue

import (
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// Every job runs once, never more than the limit at a time, and a job that has run
// can be given again.
func TestPool(t *testing.T) {
	const limit, jobs, rounds = 3, 100, 20
	p := NewPool(limit)
	var running, most, ran atomic.Int64
	done := make(chan struct{}, jobs)
	all := make([]Job, jobs)
	for i := range all {
		all[i].Run = func(bool) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			ran.Add(1)
			running.Add(-1)
			done <- struct{}{}
		}
	}
	for range rounds {
		var l List
		for i := range all {
			l.Push(&all[i])
		}
		if l.Len() != jobs {
			t.Fatalf("a list of %d jobs, want %d", l.Len(), jobs)
		}
		p.Submit(&l)
		for range all {
			<-done
		}
	}
	p.Close()
	if ran.Load() != jobs*rounds || most.Load() > limit {
		t.Errorf("%d jobs ran, %d at a time; want %d, %d at most", ran.Load(), most.Load(), jobs*rounds, limit)
	}
}

// What was taken before Close runs; what comes later is told so.
func TestPoolClose(t *testing.T) {
	p := NewPool(1)
	var ran atomic.Int64
	begun, goOn := make(chan struct{}), make(chan struct{})
	var l List
	l.Push(&Job{Run: func(bool) { close(begun); <-goOn; ran.Add(1) }})
	for range 5 {
		l.Push(&Job{Run: func(bool) { ran.Add(1) }})
	}
	p.Submit(&l)
	<-begun
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	close(goOn)
	<-closed
	if ran.Load() != 6 {
		t.Errorf("%d jobs ran, want 6", ran.Load())
	}
	told := 0
	for range 3 {
		l.Push(&Job{Run: func(closed bool) {
			if closed {
				told++
			}
		}})
	}
	if p.Submit(&l); told != 3 || l.Len() != 0 {
		t.Errorf("%d of 3 jobs were told that the pool is closed, %d are left", told, l.Len())
	}
}
