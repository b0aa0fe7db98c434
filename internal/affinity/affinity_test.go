package affinity

import (
	"runtime"
	"slices"
	"sync"
	"testing"
)

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{
		"":            nil,
		"\n":          nil,
		"0\n":         {0},
		"0-3,8,10-11": {0, 1, 2, 3, 8, 10, 11},
	} {
		got, err := parseList(s)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"a", "1-", "3-1", "-1", "0-99999999", "1;2"} {
		if got, err := parseList(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
	if got := within([]int{0, 1, 2, 3}, []int{1, 3, 5}); !slices.Equal(got, []int{1, 3}) {
		t.Error(got)
	}
}

// Processors are handed out evenly, and used again when they come back.
func TestSetIsEven(t *testing.T) {
	s := newSet(0, []int{4, 6})
	if a, b, c := s.take(), s.take(), s.take(); a != 0 || b != 1 || c != 0 {
		t.Errorf("taken %d, %d, %d", a, b, c)
	}
	s.give(1)
	if i := s.take(); i != 1 {
		t.Errorf("taken %d, want the one that was given back", i)
	}
}

func TestNever(t *testing.T) {
	s, err := Near(Never)
	if s != nil || err != nil {
		t.Fatal(s, err)
	}
	unpin, err := s.Pin()
	if err != nil || s.Node() != -1 {
		t.Error(err, s.Node())
	}
	unpin()
}

// A pinned goroutine runs on its processor, and its thread may run anywhere
// afterwards.
func TestPin(t *testing.T) {
	s, err := Near(Always)
	if err != nil {
		t.Skip("this system pins nothing: ", err)
	}
	allowed, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	var threads sync.WaitGroup
	for range 3 {
		threads.Go(func() {
			unpin, err := s.Pin()
			if err != nil {
				t.Error(err)
				return
			}
			pinned, err := allowedCPUs()
			if err != nil || len(pinned) != 1 {
				t.Errorf("pinned to %v, %v", pinned, err)
			}
			for range 100 {
				runtime.Gosched()
				if at := currentCPU(); at != pinned[0] {
					t.Errorf("pinned to %d, runs on %d", pinned[0], at)
				}
			}
			unpin()
		})
	}
	threads.Wait()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if now, err := allowedCPUs(); err != nil || !slices.Equal(now, allowed) {
		t.Errorf("may run on %v, %v; before on %v", now, err, allowed)
	}
	for _, c := range s.cpus {
		if c.users != 0 {
			t.Errorf("processor %d still has %d users", c.number, c.users)
		}
	}
}

func TestAutoIsModest(t *testing.T) {
	s, err := Near(Auto)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := allowedCPUs()
	if err != nil {
		t.Skip(err)
	}
	if few := len(allowed) < MinCPUs || len(nodesOf(allowed)) < 2; few != (s == nil) {
		t.Errorf("%d processors on %d nodes, and the set is %v", len(allowed), len(nodesOf(allowed)), s)
	}
}
