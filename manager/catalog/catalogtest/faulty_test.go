package catalogtest

import (
	"errors"
	"testing"
	"time"

	"github.com/redykv/redykv/manager/catalog"
)

func TestFaulty(t *testing.T) {
	m := catalog.NewMemory()
	s := NewFaulty(m)
	s.At(1, 2, Unavailable)
	s.At(4, 1, Full)
	s.At(5, 1, Unanswered)
	s.At(7, 1, KillAfter)
	s.Delay(time.Nanosecond)
	term := campaign(t, s, "a")
	put := func(version int64) error {
		return term.Commit(t.Context(), []catalog.Change{{Key: "a", Value: []byte{}, Version: version}})
	}
	for i, step := range []struct {
		version int64
		want    error
	}{
		{0, nil},
		{1, catalog.ErrUnavailable}, {1, catalog.ErrUnavailable}, {1, nil},
		{2, catalog.ErrFull},
		{2, catalog.ErrUnavailable}, {2, nil}, // the first was made
		{3, catalog.ErrUnavailable},
	} {
		if err := put(step.version); !errors.Is(err, step.want) {
			t.Fatalf("commit %d: %v, want %v", i, err, step.want)
		}
	}
	<-term.Lost()
	<-s.Killed()
	if err := put(4); !errors.Is(err, catalog.ErrNotLeader) {
		t.Fatal(err)
	}
	s.At(s.Commits(), 1, KillBefore)
	term = campaign(t, s, "a")
	if got := records(t, term); got["a"].Version != 4 {
		t.Fatalf("%v, want version 4", got)
	}
	if err := put(4); !errors.Is(err, catalog.ErrNotLeader) || errors.Is(err, catalog.ErrUnavailable) {
		t.Fatal(err)
	}
	if got := records(t, campaign(t, m.Join(), "b")); got["a"].Version != 4 {
		t.Errorf("%v, want version 4", got)
	}
}
