package server

import (
	"errors"
	"sync"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
)

// knock is a request whose peer never answers: Accept ends with Reject only.
type knock struct {
	hello    redywire.Hello
	accepted chan struct{} // closed by Accept
	rejected chan struct{} // closed by the first Reject
	once     sync.Once
}

func newKnock(ticket []byte, generation uint32) *knock {
	return &knock{
		hello:    redywire.Hello{Ticket: redywire.Ticket(ticket), Batch: 1, Depth: 1, Owner: 1, Generation: generation},
		accepted: make(chan struct{}), rejected: make(chan struct{}),
	}
}

func (k *knock) Private() []byte { return k.hello.Encode() }

func (k *knock) Limit(func(fabric.Token) bool) {}

func (k *knock) Accept([]byte, fabric.Rights) (fabric.QueuePair, error) {
	close(k.accepted)
	<-k.rejected
	return nil, errors.New("rejected")
}

func (k *knock) Reject(string) error {
	k.once.Do(func() { close(k.rejected) })
	return nil
}

// A connection that is being opened ends with its context: when a later one of its owner begins, and
// with its grant.
func TestOpeningEndsWithItsContext(t *testing.T) {
	s, client := newServer(t, Options{Memory: regionSize, Cores: 1})
	answer := connectCache(t, client, "cache", 1, 0, 1)
	first, second := newKnock(answer.Ticket, 1), newKnock(answer.Ticket, 2)
	s.accept(first)
	testrun.Receive(t, "the first connection is being opened", first.accepted)
	s.accept(second)
	testrun.Receive(t, "the first connection has ended, and the second one is being opened", second.accepted)
	s.mu.Lock()
	g := s.tickets[second.hello.Ticket]
	s.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- s.Close() }()
	if err := testrun.Receive(t, "the server closes", ended); err != nil {
		t.Error(err)
	}
	if n := len(g.connections); n > 0 {
		t.Errorf("%d connections are left", n)
	}
}

// While as many dials wait for earlier connections as may, no further one does.
func TestWaitingDialsAreBounded(t *testing.T) {
	s, client := newServer(t, Options{Memory: regionSize, Cores: 1})
	answer := connectCache(t, client, "cache", 1, 0, 1)
	first, second := newKnock(answer.Ticket, 1), newKnock(answer.Ticket, 2)
	s.accept(first)
	testrun.Receive(t, "the first connection is being opened", first.accepted)
	for range cap(s.waiting) {
		s.waiting <- struct{}{}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.accept(second)
	}()
	<-s.waiting
	testrun.Receive(t, "the dial takes the place", over)
	testrun.Receive(t, "the second connection is being opened", second.accepted)
	if n := len(s.waiting); n != cap(s.waiting)-1 {
		t.Errorf("%d dials wait", n)
	}
	s.waiting <- struct{}{}
	third := newKnock(answer.Ticket, 3)
	s.cancel()
	s.accept(third)
	testrun.Receive(t, "the dial is refused, as the server closes", third.rejected)
}
