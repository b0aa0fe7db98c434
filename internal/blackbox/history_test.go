package blackbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// Promise is a durability, as in --durability: what a reply to a write promises.
type Promise string

const (
	Always   Promise = "always"
	EverySec Promise = "everysec"
	None     Promise = "none"
)

// Model tracks the states that every key may have. Each key is written over one connection
// at a time, whose order the server keeps, so a key's history is a list of versions.
type Model struct {
	// Slack is added to the second within which answered writes may be lost with EverySec,
	// while no other writes are answered: the disk may be slow.
	Slack time.Duration

	promise Promise

	mu   sync.Mutex // guards the fields below, and all histories and tickets
	keys map[string]*history
	// ending is the time when the end of the server was announced; zero if it was not.
	// Replies after it may come from a server that does not know that its disk is dead.
	ending time.Time
	// lastSent is the latest send time of an answered write.
	lastSent time.Time
	// ticks are times at which this process was awake, tickEvery apart or more.
	ticks []time.Time
	// Numbers of checked replies, and of keys verified after restarts.
	replies, verified int
}

// NewModel returns the model of an empty store.
func NewModel(promise Promise) *Model {
	return &Model{promise: promise, keys: make(map[string]*history)}
}

// history holds the versions that a key may still have, or may have had when a pending read
// of it was sent.
type history struct {
	first    int       // number of versions[0]
	versions []version // the first is answered; the others follow in order
	readers  int       // pending reads from other connections
}

// version is the state of a key after a write.
type version struct {
	op       *Op // nil: the state that was found
	group    *group
	sent     time.Time
	answered time.Time // zero: not yet
	failed   bool      // answered with an error: it may or may not have been carried out
	states   []State   // possible states, once it is answered
}

// group is a transaction: it is carried out as a whole or not at all.
type group struct{ ops []*Op }

func (m *Model) history(key string) *history {
	h := m.keys[key]
	if h == nil {
		h = &history{versions: []version{{answered: time.Now(), states: []State{{}}}}}
		m.keys[key] = h
	}
	return h
}

func (h *history) last() int { return h.first + len(h.versions) - 1 }

func (h *history) at(n int) *version { return &h.versions[n-h.first] }

// answered returns the number of the last version that was answered.
func (h *history) answered() int {
	n := h.last()
	for h.at(n).answered.IsZero() {
		n--
	}
	return n
}

// states returns the possible states of version n.
func (h *history) states(n int) []State {
	if v := h.at(n); !v.answered.IsZero() {
		return v.states
	}
	var after []State
	for _, s := range h.states(n - 1) {
		s, _ = h.at(n).op.Apply(s)
		after = append(after, s)
	}
	return after
}

// ticket is a pending operation.
type ticket struct {
	op      *Op
	h       *history
	foreign bool // a read of a key that another connection writes
	// number is the version that a write makes or a read sees; for a foreign read, the
	// first version that it may see.
	number int
}

// send records operations that are about to be sent over one connection, in this order. A
// foreign read is a read of a key that another connection writes.
func (m *Model) send(ops []*Op, g *group, foreign bool) []ticket {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	tickets := make([]ticket, len(ops))
	for i, op := range ops {
		h := m.history(op.Key)
		switch {
		case op.Write:
			h.versions = append(h.versions, version{op: op, group: g, sent: now})
			tickets[i] = ticket{op, h, false, h.last()}
		case foreign:
			h.readers++
			tickets[i] = ticket{op, h, true, h.answered()}
		default:
			tickets[i] = ticket{op, h, false, h.last()}
		}
	}
	return tickets
}

// answer checks a reply and removes the states that it rules out. It is called in the order
// of a connection's replies.
func (m *Model) answer(t ticket, r Reply) error {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies++
	switch {
	case t.foreign:
		t.h.readers--
		if r.Kind != Error && !slices.ContainsFunc(t.h.between(t.number, t.h.last()), t.replies(r)) {
			return t.wrong(r, t.number, t.h.last())
		}
	case !t.op.Write:
		if r.Kind == Error {
			return nil
		}
		v := t.h.at(t.number)
		states := slices.DeleteFunc(slices.Clone(v.states), func(s State) bool { return !t.replies(r)(s) })
		if len(states) == 0 {
			return t.wrong(r, t.number, t.number)
		}
		v.states = states
	default:
		v := t.h.at(t.number)
		var states []State
		for _, s := range t.h.states(t.number - 1) {
			after, want := t.op.Apply(s)
			if r.Kind == Error {
				states = append(states, s, after)
			} else if r.Equal(want) {
				states = append(states, after)
			}
		}
		if len(states) == 0 {
			return t.wrong(r, t.number-1, t.number-1)
		}
		slices.SortFunc(states, compareStates)
		v.states, v.answered, v.failed = slices.Compact(states), now, r.Kind == Error
		if !v.failed && v.sent.After(m.lastSent) {
			m.lastSent = v.sent
		}
		if !m.ending.IsZero() {
			now = m.ending
		}
		t.h.prune(m.durable(m.promise, now))
	}
	return nil
}

// durable returns the time before which all answered writes survive an end of the server at
// ended or later.
func (m *Model) durable(promise Promise, ended time.Time) time.Time {
	const atRisk = time.Second // writes answered within this time can be lost together
	switch promise {
	case Always:
		return time.Now()
	case EverySec:
		if long := m.awakeBefore(ended, atRisk+m.Slack); long.After(m.lastSent.Add(-atRisk)) {
			return long
		}
		return m.lastSent.Add(-atRisk)
	}
	return time.Time{}
}

// tickEvery is the time of a tick.
const tickEvery = 20 * time.Millisecond

// tick notes the present time every tickEvery until ctx ends.
func (m *Model) tick(ctx context.Context) {
	for ctx.Err() == nil {
		m.mu.Lock()
		m.ticks = append(m.ticks, time.Now())
		m.mu.Unlock()
		time.Sleep(tickEvery)
	}
}

// awakeBefore returns a time that is at least d before end. While the ticks are late, the machine
// stands still or is busy, and so the server may be late, too: a tick counts as tickEvery.
func (m *Model) awakeBefore(end time.Time, d time.Duration) time.Time {
	before := end.Add(-d)
	i, _ := slices.BinarySearchFunc(m.ticks, end, time.Time.Compare)
	if i = max(i-int(d/tickEvery), 0); i < len(m.ticks) && m.ticks[i].Before(before) {
		return m.ticks[i]
	}
	return before
}

// ends records whether the server is about to be ended.
func (m *Model) ends(about bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ending = time.Time{}
	if about {
		m.ending = time.Now()
	}
}

// answerAll answers all tickets of a command for several keys, successfully or with an
// error, without comparing replies.
func (m *Model) answerAll(tickets []ticket, failed bool) error {
	for _, t := range tickets {
		r := Reply{Kind: Error}
		if !failed {
			m.mu.Lock()
			_, r = t.op.Apply(t.h.states(t.number - 1)[0])
			m.mu.Unlock()
		}
		if err := m.answer(t, r); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends reads that will not be answered. Writes stay: they may be carried out.
func (m *Model) abandon(tickets []ticket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range tickets {
		if t.foreign {
			t.h.readers--
		}
	}
}

func compareStates(a, b State) int {
	if c := strings.Compare(a.Value, b.Value); c != 0 {
		return c
	}
	return int(a.Kind)<<1 - int(b.Kind)<<1 + sign(a.Expires-b.Expires)
}

func sign(n int64) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// between returns the states of versions first to last.
func (h *history) between(first, last int) (states []State) {
	for n := first; n <= last; n++ {
		states = append(states, h.states(n)...)
	}
	return states
}

// prune drops versions that were followed by one answered before a time.
func (h *history) prune(before time.Time) {
	if h.readers > 0 {
		return
	}
	n := 0
	for n+1 < len(h.versions) && !h.versions[n+1].answered.IsZero() && h.versions[n+1].answered.Before(before) {
		n++
	}
	h.versions = slices.Delete(h.versions, 0, n)
	h.first += n
}

// replies returns a function that reports whether the ticket's command, in a state, replies
// r.
func (t ticket) replies(r Reply) func(State) bool {
	return func(s State) bool {
		_, want := t.op.Apply(s)
		return r.Equal(want)
	}
}

// wrong returns the error of a reply that none of versions first to last explains.
func (t ticket) wrong(r Reply, first, last int) error {
	var want []string
	for _, s := range t.h.between(first, last) {
		_, reply := t.op.Apply(s)
		if text := reply.String(); !slices.Contains(want, text) {
			want = append(want, text)
		}
	}
	return fmt.Errorf("%w %v is answered %v, want one of %s\n%v", testrun.ErrWrong, t.op, r, strings.Join(want, ", "), t.h)
}

// String formats the end of the history.
func (h *history) String() string {
	const most = 12
	var b strings.Builder
	for n := max(h.first, h.last()-most+1); n <= h.last(); n++ {
		v := h.at(n)
		what := "as found"
		if v.op != nil {
			what = v.op.String()
		}
		fmt.Fprintf(&b, "  version %d: %s, sent %s, ", n, what, v.sent.Format("05.000"))
		switch {
		case v.answered.IsZero():
			b.WriteString("not answered")
		case v.failed:
			b.WriteString("answered with an error")
		default:
			fmt.Fprintf(&b, "answered %s", v.answered.Format("05.000"))
		}
		fmt.Fprintf(&b, ": %v\n", h.states(n))
	}
	return b.String()
}
