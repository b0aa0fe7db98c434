package blackbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// found is the position of a key's found state in its history: one of the versions from
// earliest to latest.
type found struct{ earliest, latest int }

// Recovered checks the states of keys after an end of the server, and goes on from them.
// The server ended no earlier than ended. For a server that was stopped in order, promise
// is Always, since it keeps everything that it answered. Keys that are missing in states
// could not be read, and are not changed.
func (m *Model) Recovered(states map[string]State, promise Promise, ended time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var problems []string
	where := make(map[string]found)
	for _, key := range slices.Sorted(maps.Keys(states)) {
		h := m.history(key)
		f, err := h.find(states[key], h.kept(m.durable(promise, ended)))
		if err != nil {
			problems = append(problems, fmt.Sprintf("key %q: %v\n%v", key, err, h))
			continue
		}
		where[key] = f
	}
	if len(problems) == 0 {
		problems = append(m.torn(where), m.reordered(where)...)
	}
	if len(problems) > 0 {
		const most = 5
		return fmt.Errorf("%w %d problems of %d keys, promise %s, ended at %s\n%s",
			testrun.ErrWrong, len(problems), len(states), promise, ended.Format("05.000"), strings.Join(problems[:min(most, len(problems))], "\n"))
	}
	for key, s := range states {
		h := m.keys[key]
		h.first += len(h.versions)
		h.versions = []version{{answered: time.Now(), states: []State{s}}}
	}
	m.lastSent = time.Time{}
	m.verified += len(states)
	return nil
}

// kept returns the number of the earliest version that may be found: the last one that was
// answered before a time.
func (h *history) kept(durable time.Time) int {
	n := h.answered()
	for n > h.first && (h.at(n).failed || !h.at(n).answered.Before(durable)) {
		n--
	}
	return n
}

// find looks for a state in the versions from number from on.
func (h *history) find(s State, from int) (found, error) {
	f := found{-1, -1}
	for n := from; n <= h.last(); n++ {
		if slices.Contains(h.states(n), s) {
			if f.earliest < 0 {
				f.earliest = n
			}
			f.latest = n
		}
	}
	if f.earliest >= 0 {
		return f, nil
	}
	for n := from - 1; n >= h.first; n-- {
		if slices.Contains(h.states(n), s) {
			return f, fmt.Errorf("found %v, which is version %d; version %d or a later one must be there", s, n, from)
		}
	}
	return f, fmt.Errorf("found %v, which it never was from version %d on", s, h.first)
}

// torn reports the transactions of which only a part is found.
func (m *Model) torn(where map[string]found) (problems []string) {
	there, gone := make(map[*group]string), make(map[*group]string)
	for key, f := range where {
		h := m.keys[key]
		for n := h.first; n <= h.last(); n++ {
			g := h.at(n).group
			switch {
			case g == nil:
			case n <= f.earliest:
				there[g] = key
			case n > f.latest:
				gone[g] = key
			}
		}
	}
	for g, lost := range gone {
		if kept, torn := there[g]; torn {
			problems = append(problems, fmt.Sprintf("a part of a transaction is lost: %q has it, %q does not: %v\n%v%v",
				kept, lost, g.ops, m.keys[kept], m.keys[lost]))
		}
	}
	return problems
}

// reordered reports the keys that lack a write which was answered before a found write was
// sent.
func (m *Model) reordered(where map[string]found) (problems []string) {
	var newest *version
	var of string
	for key, f := range where {
		if v := m.keys[key].at(f.earliest); newest == nil || v.sent.After(newest.sent) {
			newest, of = v, key
		}
	}
	for key, f := range where {
		h := m.keys[key]
		for n := f.latest + 1; n <= h.last(); n++ {
			if v := h.at(n); !v.answered.IsZero() && !v.failed && v.answered.Before(newest.sent) {
				problems = append(problems, fmt.Sprintf("key %q lacks version %d, and %q has %v, sent %v later\n%v",
					key, n, of, newest.op, newest.sent.Sub(v.answered), h))
				break
			}
		}
	}
	return problems
}

// Counts returns the number of checked replies, and of keys verified after restarts.
func (m *Model) Counts() (replies, verified int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replies, m.verified
}

// Adopt returns the model of a store with these states.
func Adopt(promise Promise, states map[string]State) *Model {
	m := NewModel(promise)
	for key, s := range states {
		m.history(key).versions[0].states = []State{s}
	}
	return m
}

// Cleared records a FLUSHALL. No other operation may be pending.
func (m *Model) Cleared() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, h := range m.keys {
		h.first += len(h.versions)
		h.versions = []version{{sent: now, answered: now, states: []State{{}}}}
	}
}

// Keys returns all keys that were ever used.
func (m *Model) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.keys))
}
