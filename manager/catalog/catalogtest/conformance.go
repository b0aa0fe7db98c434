package catalogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/catalog"
)

// Data are the records of a new catalog.
type Data struct {
	// Open opens a store on the records.
	Open func() (catalog.Store, error)
	// Alone means that only one store can be open at a time.
	Alone bool
}

// Conformance tests an implementation. Each call of fresh returns another, empty catalog.
func Conformance(t *testing.T, fresh func(testing.TB) Data) {
	t.Run("model", func(t *testing.T) { testModel(t, fresh) })
	t.Run("limits", func(t *testing.T) { testLimits(t, fresh(t)) })
	t.Run("load", func(t *testing.T) { testLoad(t, fresh(t)) })
	t.Run("term", func(t *testing.T) { testTerm(t, fresh(t)) })
	t.Run("close", func(t *testing.T) { testClose(t, fresh(t)) })
	t.Run("candidates", func(t *testing.T) {
		d := fresh(t)
		if d.Alone {
			t.Skip("only one store can be open at a time")
		}
		testCandidates(t, d)
	})
}

// tester is a testing.T or a rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func open(t tester, d Data) catalog.Store {
	t.Helper()
	s, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func campaign(t tester, s catalog.Store, url string) catalog.Term {
	t.Helper()
	term, err := s.Campaign(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func closeStore(t tester, s catalog.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func commit(t tester, term catalog.Term, changes ...catalog.Change) {
	t.Helper()
	if err := term.Commit(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
}

func resign(t tester, term catalog.Term) {
	t.Helper()
	if err := term.Resign(context.Background()); err != nil {
		t.Fatal(err)
	}
	<-term.Lost()
}

// records returns all records, which must come in the order of keys.
func records(t tester, term catalog.Term) map[string]catalog.Record {
	t.Helper()
	all, last := make(map[string]catalog.Record), ""
	err := term.Load(context.Background(), func(r catalog.Record) error {
		if r.Key <= last {
			return fmt.Errorf("%q after %q", r.Key, last)
		}
		last = r.Key
		r.Value = bytes.Clone(r.Value)
		all[r.Key] = r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(a, b map[string]catalog.Record) bool {
	return maps.EqualFunc(a, b, func(a, b catalog.Record) bool {
		return a.Key == b.Key && a.Version == b.Version && bytes.Equal(a.Value, b.Value)
	})
}

// testModel compares random commits, by a succession of leaders, with a map.
func testModel(t *testing.T, fresh func(testing.TB) Data) {
	rapid.Check(t, func(r *rapid.T) {
		d := fresh(t)
		s := open(r, d)
		defer func() { closeStore(r, s) }()
		term := campaign(r, s, "a")
		want := make(map[string]catalog.Record)
		keys := rapid.SampledFrom([]string{"a", "a/b", "a0", "b", "record/", "\x00", "é", strings.Repeat("k", 300)})
		change := rapid.Custom(func(r *rapid.T) catalog.Change {
			c := catalog.Change{Key: keys.Draw(r, "key")}
			if rapid.IntRange(0, 3).Draw(r, "put") > 0 {
				c.Value = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(r, "value")
			}
			return c
		})
		r.Repeat(map[string]func(*rapid.T){
			"commit": func(r *rapid.T) {
				changes := rapid.SliceOfNDistinct(change, 0, 4, func(c catalog.Change) string { return c.Key }).Draw(r, "changes")
				for i, c := range changes {
					changes[i].Version = want[c.Key].Version
				}
				wrong := len(changes) > 0 && rapid.IntRange(0, 3).Draw(r, "wrong") == 0
				if wrong {
					c := &changes[rapid.IntRange(0, len(changes)-1).Draw(r, "of")]
					c.Version += rapid.Int64Range(1, 2).Draw(r, "by")
				}
				err := term.Commit(context.Background(), changes)
				if wrong != errors.Is(err, catalog.ErrConflict) || !wrong && err != nil {
					r.Fatalf("%v: %v", changes, err)
				}
				if !wrong {
					apply(want, changes)
				}
			},
			"resign": func(r *rapid.T) {
				resign(r, term)
				term = campaign(r, s, "a")
			},
			"restart": func(r *rapid.T) {
				resign(r, term)
				closeStore(r, s)
				s = open(r, d)
				term = campaign(r, s, "a")
			},
			"load": func(r *rapid.T) {
				if got := records(r, term); !same(got, want) {
					testrun.Wrong(r, "%v, want %v", got, want)
				}
			},
		})
		resign(r, term)
	})
}

// apply makes changes in a model.
func apply(model map[string]catalog.Record, changes []catalog.Change) {
	for _, c := range changes {
		if c.Value == nil {
			delete(model, c.Key)
		} else {
			model[c.Key] = catalog.Record{Key: c.Key, Value: c.Value, Version: c.Version + 1}
		}
	}
}

func testLimits(t *testing.T, d Data) {
	s := open(t, d)
	defer closeStore(t, s)
	term := campaign(t, s, "a")
	many := make([]catalog.Change, catalog.MaxChanges+1)
	for i := range many {
		many[i] = catalog.Change{Key: fmt.Sprintf("key-%04d", i), Value: make([]byte, catalog.MaxBytes/catalog.MaxChanges-10)}
	}
	for name, changes := range map[string][]catalog.Change{
		"too many":  many,
		"too large": {{Key: "a", Value: make([]byte, catalog.MaxBytes)}},
		"twice":     {{Key: "a", Value: []byte{}}, {Key: "a"}},
		"no key":    {{Value: []byte{}}},
		"negative":  {{Key: "a", Value: []byte{}, Version: -1}},
	} {
		if err := term.Commit(t.Context(), changes); err == nil || errors.Is(err, catalog.ErrNotLeader) {
			t.Errorf("%s: %v", name, err)
		}
	}
	commit(t, term, many[:catalog.MaxChanges]...)
	many[3].Version, many[5].Version = 1, 7
	for i := range many[:catalog.MaxChanges] {
		many[i].Value = nil
		if i != 5 {
			many[i].Version = 1
		}
	}
	if err := term.Commit(t.Context(), many[:catalog.MaxChanges]); !errors.Is(err, catalog.ErrConflict) || !strings.Contains(err.Error(), "key-0005") {
		t.Errorf("conflict: %v", err)
	}
	if got := records(t, term); len(got) != catalog.MaxChanges {
		t.Errorf("%d records", len(got))
	}
	resign(t, term)
}

func testLoad(t *testing.T, d Data) {
	s := open(t, d)
	defer closeStore(t, s)
	term := campaign(t, s, "a")
	const groups = 25 // more records than are read at once
	for g := range groups {
		changes := make([]catalog.Change, 100)
		for i := range changes {
			changes[i] = catalog.Change{Key: fmt.Sprintf("%02d/%02d", g, i), Value: []byte{byte(g), byte(i)}}
		}
		commit(t, term, changes...)
	}
	for range 2 {
		if got := records(t, term); len(got) != groups*100 {
			t.Errorf("%d records", len(got))
		}
		resign(t, term)
		term = campaign(t, s, "a")
	}
	enough := errors.New("enough")
	if err := term.Load(t.Context(), func(catalog.Record) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error of the caller: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := term.Load(ctx, func(catalog.Record) error { return nil }); err == nil {
		t.Error("canceled Load succeeded")
	}
	resign(t, term)
}

// A store has one term at a time, and a later one after Resign.
func testTerm(t *testing.T, d Data) {
	s := open(t, d)
	defer closeStore(t, s)
	term := campaign(t, s, "http://a")
	if s.Leader() != "http://a" {
		t.Errorf("leader %q", s.Leader())
	}
	commit(t, term, catalog.Change{Key: "a", Value: []byte("1")})
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := s.Campaign(ctx, "http://b")
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled campaign: %v", err)
	}
	resign(t, term)
	resign(t, term)
	if s.Leader() != "" {
		t.Errorf("leader %q after Resign", s.Leader())
	}
	checkEnded(t, term)
	later := campaign(t, s, "http://b")
	checkEnded(t, term)
	if got := records(t, later); len(got) != 1 || got["a"].Version != 1 {
		t.Errorf("%v", got)
	}
	if s.Leader() != "http://b" {
		t.Errorf("leader %q", s.Leader())
	}
	resign(t, later)
}

// checkEnded checks that a term can neither read nor write.
func checkEnded(t *testing.T, term catalog.Term) {
	t.Helper()
	if err := term.Commit(t.Context(), []catalog.Change{{Key: "a", Value: []byte("late"), Version: 1}}); !errors.Is(err, catalog.ErrNotLeader) {
		t.Errorf("commit after the term: %v", err)
	}
	if err := term.Commit(t.Context(), nil); !errors.Is(err, catalog.ErrNotLeader) {
		t.Errorf("commit without changes after the term: %v", err)
	}
	if err := term.Load(t.Context(), func(catalog.Record) error { return nil }); !errors.Is(err, catalog.ErrNotLeader) {
		t.Errorf("load after the term: %v", err)
	}
}

func testClose(t *testing.T, d Data) {
	s := open(t, d)
	term := campaign(t, s, "a")
	waiting := make(chan error)
	go func() {
		_, err := s.Campaign(context.Background(), "b")
		waiting <- err
	}()
	for range 2 {
		closeStore(t, s)
	}
	<-term.Lost()
	checkEnded(t, term)
	if err := <-waiting; err == nil {
		t.Error("campaign of a closed store succeeded")
	}
	if _, err := s.Campaign(t.Context(), "c"); err == nil {
		t.Error("campaign after Close succeeded")
	}
}

// One candidate leads, the others wait. Each leader finds all records of the earlier ones.
func testCandidates(t *testing.T, d Data) {
	const candidates, terms, commits = 3, 4, 10
	stores := make([]catalog.Store, candidates)
	for i := range stores {
		stores[i] = open(t, d)
		defer closeStore(t, stores[i])
	}
	type elected struct {
		term catalog.Term
		by   int
		err  error
	}
	leaders := make(chan elected)
	run := func(i int) {
		term, err := stores[i].Campaign(t.Context(), fmt.Sprint(i))
		leaders <- elected{term, i, err}
	}
	for i := range stores {
		go run(i)
	}
	want := make(map[string]catalog.Record)
	var old []catalog.Term
	for range terms * candidates {
		e := <-leaders
		if e.err != nil {
			t.Fatal(e.err)
		}
		if got := stores[e.by].Leader(); got != fmt.Sprint(e.by) {
			t.Errorf("leader %q, want %d", got, e.by)
		}
		if got := records(t, e.term); !same(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range commits {
			key := string(rune('a' + i%4))
			changes := []catalog.Change{{Key: key, Value: []byte{byte(e.by)}, Version: want[key].Version}}
			commit(t, e.term, changes...)
			apply(want, changes)
		}
		for _, term := range old {
			if err := term.Commit(t.Context(), []catalog.Change{{Key: "a", Version: want["a"].Version}}); !errors.Is(err, catalog.ErrNotLeader) {
				t.Errorf("commit of an earlier leader: %v", err)
			}
		}
		select {
		case e := <-leaders:
			t.Fatalf("%d leads, too: %v", e.by, e.err)
		default:
		}
		old = append(slices.Clip(old), e.term)
		resign(t, e.term)
		go run(e.by)
	}
	for range stores {
		e := <-leaders
		if e.err != nil {
			t.Fatal(e.err)
		}
		resign(t, e.term)
	}
}
