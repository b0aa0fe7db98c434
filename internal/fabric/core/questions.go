package core

import (
	"context"
	"sync"
)

// Questions sends questions to the peer, one at a time, and returns the answers
// that the connection's reading goroutine receives. Each question has a number, so that a
// late answer is not taken for the answer to the next question.
type Questions[A any] struct {
	state *State
	over  chan struct{}

	mu      sync.Mutex
	asked   uint32         // the last question's number
	wanted  uint32         // number of the question that Ask waits for; 0: none
	answers chan answer[A] // capacity 1
}

type answer[A any] struct {
	value A
	err   error
}

// NewQuestions returns the Questions of a queue pair with the given state.
func NewQuestions[A any](state *State) *Questions[A] {
	return &Questions[A]{state: state, over: make(chan struct{}), answers: make(chan answer[A], 1)}
}

// Ask sends a question, with a number that is never 0, and waits for its answer. It returns
// the error of the answer, of send, of the state after the connection has ended, or of ctx. An
// answer that was delivered is always returned. Any goroutine may call it, one at a time.
func (q *Questions[A]) Ask(ctx context.Context, send func(number uint32) error) (none A, err error) {
	if err := q.state.Err(); err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	q.mu.Lock()
	q.asked = max(1, q.asked+1)
	number := q.asked
	q.wanted = number
	q.mu.Unlock()
	if err = send(number); err == nil {
		select {
		case a := <-q.answers:
			return a.value, a.err
		case <-q.over:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wanted = 0
	select {
	case a := <-q.answers: // delivered at the same moment
		return a.value, a.err
	default:
	}
	if ended := q.state.Err(); ended != nil {
		err = ended
	}
	return none, err
}

// Answer passes an answer to the Ask that waits for it. It returns false if there is none;
// the answer then still belongs to the caller. It never blocks and is safe for concurrent use.
func (q *Questions[A]) Answer(number uint32, value A, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if number == 0 || number != q.wanted {
		return false
	}
	q.wanted = 0
	q.answers <- answer[A]{value, err} // never blocks: one answer for each question
	return true
}

// End ends a waiting Ask. The state holds the reason by then. It is called once, by the
// goroutine that delivers answers.
func (q *Questions[A]) End() { close(q.over) }
