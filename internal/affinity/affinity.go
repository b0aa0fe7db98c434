// Package affinity pins threads to processors, by NUMA node.
//
// A pinned goroutine is locked to its thread, so waking it needs the kernel, while another
// goroutine is woken within the process. That pays for threads that spin on dedicated
// processors, and costs where processors are few and shared; so in mode [Auto] a [Set] pins
// only if there are several nodes and enough processors.
//
// For processes that wake each other, a message takes twice as long or half as long depending
// on whether the kernel runs them on one processor or on two, and the kernel may change that at
// any time. [Confine] restricts a whole process to some processors, and [Halves] divides the
// processors between two processes.
package affinity

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Mode selects whether to pin.
type Mode int

// The modes.
const (
	// Auto pins if this process may use MinCPUs processors on several nodes.
	Auto Mode = iota
	// Always pins if the system can.
	Always
	// Never does not pin.
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

// MinCPUs is the smallest number of processors with which Auto pins.
const MinCPUs = 4

// Set assigns processors to threads, the least used first. All methods are safe for concurrent
// use; those of a nil Set do not pin.
type Set struct {
	node int

	mu   sync.Mutex
	cpus []cpu
}

type cpu struct {
	number int
	users  int
}

// Near returns a set of the processors of the caller's node, or of all that this process may
// use if nodes are not known. It returns nil without an error if mode is not to pin.
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

// near returns the set for a caller on processor at.
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

// Node is the NUMA node of the set's processors, -1 if it is not known.
func (s *Set) Node() int {
	if s == nil {
		return -1
	}
	return s.node
}

// Pin locks the calling goroutine to its thread, and the thread to a processor of the set. The
// same goroutine calls unpin, once; if the thread's processors cannot be restored, the thread
// ends with the goroutine.
func (s *Set) Pin() (unpin func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	i := s.take()
	undo, err := pin(s.cpus[i].number)
	if err != nil {
		s.give(i)
		return func() {}, fmt.Errorf("affinity: pinning to processor %d: %w", s.cpus[i].number, err)
	}
	return func() {
		undo()
		s.give(i)
	}, nil
}

// ConfineThread locks the calling goroutine to its thread, and restricts the thread and the
// processes that it starts to some processors. The same goroutine calls undo, once, as for Pin.
func ConfineThread(cpus []int) (undo func(), err error) {
	if undo, err = pin(cpus...); err != nil {
		return nil, fmt.Errorf("affinity: restricting a thread to processors %v: %w", cpus, err)
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
