package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// An answer reaches its question, also after answers to others and after questions that were
// given up.
func TestQuestions(t *testing.T) {
	var state State
	q := NewQuestions[string](&state)
	given, cancel := context.WithCancel(t.Context())
	first := uint32(0)
	if a, err := q.Ask(given, func(number uint32) error {
		first = number
		cancel()
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("given up: %q, %v", a, err)
	}
	if q.Answer(first, "too late", nil) {
		t.Error("an answer was taken that nobody waits for")
	}
	a, err := q.Ask(t.Context(), func(number uint32) error {
		if number == first || number == 0 {
			t.Errorf("question %d after %d", number, first)
		}
		for _, other := range []uint32{0, first, number + 1} {
			if q.Answer(other, "of another", nil) {
				t.Errorf("answer %d was taken for %d", other, number)
			}
		}
		if !q.Answer(number, "right", nil) || q.Answer(number, "again", nil) {
			t.Error("one question, one answer")
		}
		return nil
	})
	if a != "right" || err != nil {
		t.Fatalf("%q, %v", a, err)
	}
	failed := errors.New("send")
	if _, err := q.Ask(t.Context(), func(uint32) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("send failed: %v", err)
	}
	if _, err := q.Ask(given, func(uint32) error { panic("asked") }); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	q.asked = ^uint32(0)
	if _, err := q.Ask(t.Context(), func(number uint32) error {
		q.Answer(number, "", nil)
		return nil
	}); err != nil || q.asked != 1 {
		t.Errorf("after the last number comes %d: %v", q.asked, err)
	}
}

// An answer that arrives when the asker gives up is returned, because it may hold a resource
// that must be given back.
func TestAnswerWins(t *testing.T) {
	var state State
	q := NewQuestions[int](&state)
	for i := range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		taken := make(chan bool)
		a, err := q.Ask(ctx, func(number uint32) error {
			go func() {
				taken <- q.Answer(number, i, nil)
			}()
			go cancel()
			return nil
		})
		if <-taken != (err == nil) || err == nil && a != i {
			t.Fatalf("%d: %d, %v", i, a, err)
		}
		cancel()
	}
}

// The end of the connection ends pending and later questions.
func TestQuestionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state State
		q := NewQuestions[int](&state)
		ended := errors.New("ended")
		go func() {
			synctest.Wait() // Ask waits
			state.End(ended)
			q.End()
		}()
		if _, err := q.Ask(t.Context(), func(uint32) error { return nil }); !errors.Is(err, ended) {
			t.Errorf("pending question: %v", err)
		}
		if _, err := q.Ask(t.Context(), func(uint32) error { panic("asked") }); !errors.Is(err, ended) {
			t.Errorf("afterwards: %v", err)
		}
	})
}
