package affinity

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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
	if few := len(allowed) < MinCPUs || len(nodesOf(systemNodes, allowed)) < 2; few != (s == nil) {
		t.Errorf("%d processors on %d nodes, and the set is %v", len(allowed), len(nodesOf(systemNodes, allowed)), s)
	}
}

// machine is a tree as Linux has it of its NUMA nodes, each with a list of processors.
func machine(t *testing.T, lists map[string]string) string {
	root := t.TempDir()
	for name, list := range lists {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "cpulist"), []byte(list), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// On a machine of two nodes threads stay on the node they were started on, with those
// of its processors that the process may use.
func TestTwoNodes(t *testing.T) {
	root := machine(t, map[string]string{
		"node0": "0-3,8-11\n", "node1": "4-7,12-15\n",
		"node2":    "\n",      // memory alone
		"node3":    "what?\n", // not to be understood
		"nodeless": "0-15\n",
		"power":    "0-15\n",
	})
	if err := os.Mkdir(filepath.Join(root, "node4"), 0o755); err != nil { // without a list
		t.Fatal(err)
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	for _, c := range []struct {
		name    string
		mode    Mode
		allowed []int
		at      int
		node    int
		cpus    []int // nil: nothing is pinned
	}{
		{"first node", Auto, all, 9, 0, []int{0, 1, 2, 3, 8, 9, 10, 11}},
		{"second node", Auto, all, 4, 1, []int{4, 5, 6, 7, 12, 13, 14, 15}},
		{"part of both", Auto, []int{2, 3, 4, 5}, 5, 1, []int{4, 5}},
		{"too few processors", Auto, []int{2, 3, 4}, 4, -1, nil},
		{"one node of two", Auto, []int{4, 5, 6, 7}, 4, -1, nil},
		{"all the same", Always, []int{4, 5}, 4, 1, []int{4, 5}},
		{"nobody knows where", Always, []int{3, 4}, -1, -1, []int{3, 4}},
	} {
		s := near(c.mode, nodesOf(root, c.allowed), c.allowed, c.at)
		if (s == nil) != (c.cpus == nil) || s.Node() != c.node {
			t.Errorf("%s: the set is %+v, want %v of node %d", c.name, s, c.cpus, c.node)
			continue
		}
		var got []int
		for range c.cpus { // as many threads as processors: each has its own
			got = append(got, s.cpus[s.take()].number)
		}
		if !slices.Equal(got, c.cpus) {
			t.Errorf("%s: %v, want %v", c.name, got, c.cpus)
		}
	}
	if nodes := nodesOf(filepath.Join(root, "nowhere"), all); nodes != nil {
		t.Errorf("a system that does not tell has nodes %v", nodes)
	}
}

// A mode is read as it is written.
func TestModes(t *testing.T) {
	for _, want := range []Mode{Auto, Always, Never} {
		var got Mode
		if err := got.Set(want.String()); err != nil || got != want {
			t.Errorf("%v came back as %v, %v", want, got, err)
		}
	}
	m := Never
	if err := m.Set("sometimes"); err == nil || m != Never {
		t.Errorf("sometimes is %v, %v", m, err)
	}
}

// Halves share no core but the one in the middle, however the system counts its
// processors.
func TestHalves(t *testing.T) {
	for _, c := range []struct {
		name          string
		siblings      []string // by processor
		allowed       []int
		first, second []int
	}{
		{"no cores told", nil, []int{0, 1, 2, 3}, []int{0, 1}, []int{2, 3}},
		{"an odd number", nil, []int{0, 1, 2}, []int{0, 1}, []int{2}},
		{"neighbours share", []string{"0-1", "0-1", "2-3", "2-3"}, []int{0, 1, 2, 3}, []int{0, 1}, []int{2, 3}},
		{"halves share", []string{"0,2", "1,3", "0,2", "1,3"}, []int{0, 1, 2, 3}, []int{0, 2}, []int{1, 3}},
		{"some of them", []string{"0,3", "1,4", "2,5", "0,3", "1,4", "2,5"}, []int{1, 2, 4, 5}, []int{1, 4}, []int{2, 5}},
		{"nonsense", []string{"?", "\n"}, []int{0, 1}, []int{0}, []int{1}},
	} {
		root := t.TempDir()
		for cpu, list := range c.siblings {
			dir := filepath.Join(root, "cpu"+strconv.Itoa(cpu), "topology")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "thread_siblings_list"), []byte(list), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if first, second := halves(root, c.allowed); !slices.Equal(first, c.first) || !slices.Equal(second, c.second) {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, first, second, c.first, c.second)
		}
	}
}

func TestCPUsAreAFlag(t *testing.T) {
	var c CPUs
	if err := c.Set("4-6,12"); err != nil || c.String() != "4,5,6,12" {
		t.Errorf("%v, %v", c, err)
	}
	for _, bad := range []string{"", "a", "2-1", "-1"} {
		if err := c.Set(bad); err == nil || c.String() != "4,5,6,12" {
			t.Errorf("%q is %v, %v", bad, c, err)
		}
	}
}
