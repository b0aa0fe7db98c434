package blackbox

import (
	"strings"
	"testing"
	"time"
)

// script drives a model like one connection.
type script struct {
	t *testing.T
	m *Model
}

// sends sends operations without an answer.
func (s *script) sends(g *group, ops ...*Op) []ticket { return s.m.send(ops, g, false) }

// answers answers tickets as a correct store would.
func (s *script) answers(tickets []ticket) {
	s.t.Helper()
	if err := s.m.answerAll(tickets, false); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) does(ops ...*Op) { s.answers(s.sends(nil, ops...)) }

func str(value string) State { return State{Kind: String, Value: value} }

// TestRecovered recovers stores with fewer or other values than promised.
func TestRecovered(t *testing.T) {
	both := &group{}
	long := 2 * time.Second
	for name, c := range map[string]struct {
		promise Promise
		before  func(s *script)
		ended   time.Duration // after before
		found   map[string]State
		want    string // part of the error; empty: no error
	}{
		"all there": {Always, func(s *script) { s.does(opSet("a", "1"), opIncrBy("n", 3)) }, 0, map[string]State{"a": str("1"), "n": str("3")}, ""},
		"lost":      {Always, func(s *script) { s.does(opSet("a", "1")) }, 0, map[string]State{"a": {}}, "which it never was"},
		"an older value": {
			Always, func(s *script) { s.does(opSet("a", "1"), opSet("a", "2")) }, 0, map[string]State{"a": str("1")}, "which it never was",
		},
		"a wrong value":          {Always, func(s *script) { s.does(opSet("a", "1")) }, 0, map[string]State{"a": str("x")}, "which it never was"},
		"a key that was deleted": {Always, func(s *script) { s.does(opSet("a", "1"), opDel("a")) }, 0, map[string]State{"a": str("1")}, "which it never was"},
		"an expiry that is lost": {Always, func(s *script) { s.does(opSetUntil("a", "1", 5)) }, 0, map[string]State{"a": str("1")}, "which it never was"},
		"under way, and there":   {Always, func(s *script) { s.sends(nil, opSet("a", "1")) }, 0, map[string]State{"a": str("1")}, ""},
		"under way, and not":     {Always, func(s *script) { s.sends(nil, opSet("a", "1")) }, 0, map[string]State{"a": {}}, ""},
		"the last second":        {EverySec, func(s *script) { s.does(opSet("a", "1")) }, 0, map[string]State{"a": {}}, ""},
		"in a second of its own": {EverySec, func(s *script) {
			s.does(opSet("a", "1"))
			s.m.lastSent = time.Now().Add(time.Minute)
		}, 0, map[string]State{"a": {}}, "must be there"},
		"more than a second": {EverySec, func(s *script) { s.does(opSet("a", "1")) }, long, map[string]State{"a": {}}, "must be there"},
		"a hole": {EverySec, func(s *script) {
			s.does(opSet("a", "1"))
			time.Sleep(time.Millisecond) // so that the times differ
			s.does(opSet("b", "1"))
		}, 0, map[string]State{"a": {}, "b": str("1")}, "lacks version"},
		"half of a transaction": {
			EverySec, func(s *script) { s.answers(s.sends(both, opSet("a", "1"), opSet("b", "1"))) }, 0,
			map[string]State{"a": {}, "b": str("1")}, "a part of a transaction",
		},
		"no transaction":   {EverySec, func(s *script) { s.answers(s.sends(both, opSet("a", "1"), opSet("b", "1"))) }, 0, map[string]State{"a": {}, "b": {}}, ""},
		"nothing promised": {None, func(s *script) { s.does(opSet("a", "1"), opSet("a", "2")) }, long, map[string]State{"a": str("1")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{t, NewModel(c.promise)}
			c.before(s)
			err := s.m.Recovered(c.found, c.promise, time.Now().Add(c.ended))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestReplies answers with correct and wrong replies.
func TestReplies(t *testing.T) {
	s := &script{t, NewModel(Always)}
	s.does(opSet("a", "1"), opHSet("h", "f", "1"), opIncrBy("n", 7))
	for _, c := range []struct {
		op    *Op
		reply Reply
		right bool
	}{
		{opGet("a"), bulk("1"), true},
		{opGet("a"), bulk("2"), false},
		{opGet("a"), null, false},
		{opHGet("h", "f"), bulk("1"), true},
		{opHLen("h"), integer(2), false},
		{opIncrBy("n", 1), integer(8), true},
		{opIncrBy("n", 1), integer(8), false},
		{opDel("none"), integer(1), false},
	} {
		if err := s.m.answer(s.sends(nil, c.op)[0], c.reply); (err == nil) != c.right {
			t.Errorf("%v answered %v: %v", c.op, c.reply, err)
		}
	}
}

// TestFailedWrite checks that after a failed write both states are possible, until a read
// decides.
func TestFailedWrite(t *testing.T) {
	s := &script{t, NewModel(Always)}
	s.does(opSet("a", "1"))
	if err := s.m.answerAll(s.sends(nil, opSet("a", "2")), true); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "2"} {
		m := Adopt(Always, nil)
		m.keys["a"] = &history{versions: append([]version(nil), s.m.keys["a"].versions...)}
		other := &script{t, m}
		if err := m.answer(other.sends(nil, opGet("a"))[0], bulk(value)); err != nil {
			t.Error(err)
		}
		another := map[string]string{"1": "2", "2": "1"}[value]
		if err := m.answer(other.sends(nil, opGet("a"))[0], bulk(another)); err == nil {
			t.Errorf("reads see %s, then %s", value, another)
		}
	}
}

// TestAwakeBefore: a standstill of the machine does not count.
func TestAwakeBefore(t *testing.T) {
	began := time.Now()
	for name, stands := range map[string]time.Duration{"awake": 0, "a standstill": 5 * time.Second} {
		m, at := NewModel(EverySec), began
		if got := m.awakeBefore(began, time.Second); !got.Equal(began.Add(-time.Second)) {
			t.Errorf("without ticks: %v", got.Sub(began))
		}
		for n := range 200 {
			m.ticks = append(m.ticks, at)
			if at = at.Add(tickEvery); n == 100 {
				at = at.Add(stands)
			}
		}
		got := at.Sub(m.awakeBefore(at, 3*time.Second))
		if want := 3*time.Second + stands; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
