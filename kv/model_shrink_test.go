package kv

import (
	"errors"
	"slices"
	"time"
)

// shrinker shortens a failing script: it leaves out steps, parts of steps and operations as
// long as the script still fails.
type shrinker struct {
	script modelScript
	err    error // of script
	until  time.Time
}

// shrinkTries is the number of runs without a failure after which a script counts as passing:
// failures may depend on the timing of goroutines.
const shrinkTries = 4

func (s *shrinker) shrink() {
	for before := -1; before != s.size() && time.Now().Before(s.until); {
		before = s.size()
		s.dropSteps()
		s.dropParts()
		s.dropOps()
	}
}

func (s *shrinker) size() int {
	n := len(s.script.steps)
	for _, step := range s.script.steps {
		n += len(step.batches)
		for _, b := range step.batches {
			n += len(b.ops)
		}
	}
	return n
}

// try keeps a shorter script if it fails.
func (s *shrinker) try(steps []modelStep) bool {
	script := modelScript{s.script.setup, steps}
	for range shrinkTries {
		if time.Now().After(s.until) {
			return false
		}
		err := playInTime(script)
		if errors.Is(err, errHangs) {
			s.until = time.Now() // after a hang other runs may be disturbed
		}
		if err != nil {
			s.script, s.err = script, err
			return true
		}
	}
	return false
}

// chunks leaves out parts of a list, large ones first. drop reports whether the list may lack
// [from, to).
func chunks(length func() int, drop func(from, to int) bool) {
	for size := length(); size > 0; size /= 2 {
		for from := 0; from < length(); {
			if !drop(from, min(from+size, length())) {
				from += size
			}
		}
	}
}

func (s *shrinker) dropSteps() {
	chunks(func() int { return len(s.script.steps) }, func(from, to int) bool {
		return s.try(slices.Delete(slices.Clone(s.script.steps), from, to))
	})
}

// change tries the script with another step at i.
func (s *shrinker) change(i int, step modelStep) bool {
	steps := slices.Clone(s.script.steps)
	steps[i] = step
	return s.try(steps)
}

func (s *shrinker) dropParts() {
	for i := range s.script.steps {
		for _, without := range []func(*modelStep) bool{
			func(step *modelStep) bool { had := step.sick; step.sick = false; return had },
			func(step *modelStep) bool { had := step.fail > 0; step.fail = 0; return had },
			func(step *modelStep) bool { had := step.cut > 0; step.cut = 0; return had },
			func(step *modelStep) bool { had := step.action != ""; step.action = ""; return had },
		} {
			if step := s.script.steps[i]; without(&step) {
				s.change(i, step)
			}
		}
		for b := 0; b < len(s.script.steps[i].batches); {
			step := s.script.steps[i]
			step.batches = slices.Delete(slices.Clone(step.batches), b, b+1)
			if !s.change(i, step) {
				b++
			}
		}
	}
}

func (s *shrinker) dropOps() {
	for i := range s.script.steps {
		for b := range s.script.steps[i].batches {
			ops := func() []modelOp { return s.script.steps[i].batches[b].ops }
			chunks(func() int { return len(ops()) }, func(from, to int) bool {
				step := s.script.steps[i]
				step.batches = slices.Clone(step.batches)
				step.batches[b].ops = slices.Delete(slices.Clone(ops()), from, to)
				return s.change(i, step)
			})
		}
	}
}
