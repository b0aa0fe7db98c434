package core

import (
	"context"
	"sync"
)

// Questions are what the owner of a queue pair asks its peer, one at a time, and
// the answers, which the goroutine that reads the connection brings. Each question
// has a number, by which an answer that comes too late is told from the next one's.
type Questions[A any] struct {
	state *State
	over  chan struct{}

	mu      sync.Mutex
	asked   uint32 // the last question's number
	wanted  uint32 // of the question that Ask waits for; 0: none
	answers chan A // room for one
}

// NewQuestions returns the questions of a queue pair with that state.
func NewQuestions[A any](state *State) *Questions[A] {
	return &Questions[A]{state: state, over: make(chan struct{}), answers: make(chan A, 1)}
}

// Ask sends a question with a number that is never 0, and waits for its answer. It
// returns send's error, the state's once the connection has ended, or ctx's. An
// answer that was given is never lost: Ask returns it. Owner.
func (q *Questions[A]) Ask(ctx context.Context, send func(number uint32) error) (answer A, err error) {
	if err := q.state.Err(); err != nil {
		return answer, err
	}
	if ctx.Err() != nil {
		return answer, context.Cause(ctx)
	}
	q.mu.Lock()
	q.asked = max(1, q.asked+1)
	number := q.asked
	q.wanted = number
	q.mu.Unlock()
	if err = send(number); err == nil {
		select {
		case answer = <-q.answers:
			return answer, nil
		case <-q.over:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wanted = 0
	select {
	case answer = <-q.answers: // in that very moment
		return answer, nil
	default:
	}
	if ended := q.state.Err(); ended != nil {
		err = ended
	}
	return answer, err
}

// Answer hands an answer to the Ask that waits for it. It reports false if none
// does: then the answer stays the caller's. It never blocks. Safe for concurrent
// use.
func (q *Questions[A]) Answer(number uint32, a A) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if number == 0 || number != q.wanted {
		return false
	}
	q.wanted = 0
	q.answers <- a // there is room: one answer for each question
	return true
}

// End tells who waits that no answer comes any more, once the state says why. It
// is called once, by who brings the answers.
func (q *Questions[A]) End() { close(q.over) }
