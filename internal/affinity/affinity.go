// Package affinity pins threads to processors, with an eye on NUMA nodes.
//
// A goroutine that is pinned is locked to its thread: waking it takes the kernel,
// where a free goroutine is handed over within the process. That pays for threads
// that spin on processors of their own, and costs where processors are few and
// shared; so by itself a [Set] pins only where there is more than one node and
// enough processors.
//
// Processes that wake each other are another matter: whether the kernel has them take
// turns on one processor or wakes them on two, which may have halted, changes how long a
// message takes by a factor of two, and it may change its mind at any time. [Confine]
// keeps a whole process to some processors, and [Halves] gives two processes some each.
package affinity

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Mode reports whether to pin.
type Mode int

// The modes.
const (
	// Auto pins where this process may use MinCPUs processors on several nodes.
	Auto Mode = iota
	// Always pins wherever the system can.
	Always
	// Never pins nothing.
	Never
)

// modes are the modes' names.
var modes = []string{Auto: "auto", Always: "always", Never: "never"}

// Modes lists the modes' names.
func Modes() string { return strings.Join(modes, ", ") }

// String is the mode's name.
func (m Mode) String() string { return modes[m] }

// Set makes m the mode of that name.
func (m *Mode) Set(name string) error {
	i := slices.Index(modes, name)
	if i < 0 {
		return fmt.Errorf("want one of %s", Modes())
	}
	*m = Mode(i)
	return nil
}

// Type is what flags call a value.
func (m Mode) Type() string { return "mode" }

// MinCPUs is how many processors Auto wants before it pins.
const MinCPUs = 4

// Set hands processors out to threads, the least used first. All methods are safe
// for concurrent use, and those of a nil Set pin nothing.
type Set struct {
	node int

	mu   sync.Mutex
	cpus []cpu
}

type cpu struct {
	number int
	users  int
}

// Near returns a set of the processors of the node that the caller runs on, or of
// all that this process may use where nodes are not known. It is nil, and no error,
// where mode says not to pin.
func Near(mode Mode) (*Set, error) {
	if mode == Never {
		return nil, nil
	}
	allowed, err := allowedCPUs()
	if err != nil {
		if mode == Auto {
			return nil, nil
		}
		return nil, fmt.Errorf("affinity: %w", err)
	}
	return near(mode, nodesOf(systemNodes, allowed), allowed, currentCPU()), nil
}

// near is the set for a caller on processor at.
func near(mode Mode, nodes []node, allowed []int, at int) *Set {
	if mode == Auto && (len(allowed) < MinCPUs || len(nodes) < 2) {
		return nil
	}
	for _, n := range nodes {
		if slices.Contains(n.cpus, at) {
			return newSet(n.id, n.cpus)
		}
	}
	return newSet(-1, allowed)
}

func newSet(node int, cpus []int) *Set {
	s := &Set{node: node}
	for _, c := range cpus {
		s.cpus = append(s.cpus, cpu{number: c})
	}
	return s
}

// Node is the NUMA node of the set's processors, -1 where it is not known.
func (s *Set) Node() int {
	if s == nil {
		return -1
	}
	return s.node
}

// Pin locks the calling goroutine to its thread, and the thread to a processor of
// the set. The same goroutine calls unpin, once; a thread whose processors cannot
// be given back to it ends with the goroutine instead.
func (s *Set) Pin() (unpin func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	i := s.take()
	undo, err := pin(s.cpus[i].number)
	if err != nil {
		s.give(i)
		return func() {}, fmt.Errorf("affinity: pin to processor %d: %w", s.cpus[i].number, err)
	}
	return func() {
		undo()
		s.give(i)
	}, nil
}

// ConfineThread locks the calling goroutine to its thread, and keeps that, and the
// processes that it starts, to some processors. The same goroutine calls undo, once, as
// that of Pin.
func ConfineThread(cpus []int) (undo func(), err error) {
	if undo, err = pin(cpus...); err != nil {
		return nil, fmt.Errorf("affinity: keep a thread to processors %v: %w", cpus, err)
	}
	return undo, nil
}

func (s *Set) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := 0
	for i := range s.cpus {
		if s.cpus[i].users < s.cpus[least].users {
			least = i
		}
	}
	s.cpus[least].users++
	return least
}

func (s *Set) give(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cpus[i].users--
}
