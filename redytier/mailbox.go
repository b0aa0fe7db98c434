package redytier

import "sync"

// mailbox takes functions from any goroutine, for the goroutine of a controller. Posting never
// blocks.
type mailbox struct {
	mu      sync.Mutex    // guards letters and closed
	letters []func()      // in the order of posting
	closed  bool          // nobody takes letters any more
	some    chan struct{} // holds a token while there may be letters
}

func newMailbox() *mailbox { return &mailbox{some: make(chan struct{}, 1)} }

// post returns false if the mailbox is closed.
func (m *mailbox) post(letter func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.letters = append(m.letters, letter)
	offer(m.some)
	return true
}

// take removes all letters. After the last call, with close, no letter is accepted.
func (m *mailbox) take(last bool) []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	letters := m.letters
	m.letters, m.closed = nil, m.closed || last
	return letters
}
