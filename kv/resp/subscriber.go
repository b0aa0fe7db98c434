package resp

import (
	"errors"
	"sync"
	"time"
)

// subscriber is what a connection has once it has subscribed to something: the names that it
// is subscribed to, and the queue of messages for it.
//
// Publishers append to the queue. The owner of the connection sends it, after the replies of
// its batch. Publishers notify an owner once until the owner has emptied the queue: a loop by
// an entry in its due list, a goroutine that waits for input by a read deadline in the past.
// An owner that does neither looks at the queue before it waits again, so nothing is lost
// while the connection moves between a loop and a goroutine.
type subscriber struct {
	client *client

	// Of the owner only:
	names [topicKinds]map[string]struct{}
	bytes int64 // of the budget for requests, taken for the names

	// Guarded by pubsub.mu.
	resp3 bool

	mu       sync.Mutex // guards the fields below
	queue    []*message // queue[head:] are to be sent
	head     int
	at       int   // bytes of queue[head] that are sent
	loop     *loop // the loop that owns the connection; nil if a goroutine does
	reading  bool  // the owning goroutine waits for input, and may be interrupted
	notified bool
	gone     bool      // the client is disconnected or is being disconnected
	over     time.Time // when the queue exceeded the soft limit; zero if it does not
}

// subscriptionCost is the bytes that a subscription takes besides two copies of its name.
const subscriptionCost = 256

// subscriber returns the connection's subscriber, and makes it first if there is none.
func (c *client) subscriber() *subscriber {
	if c.sub == nil {
		c.sub = &subscriber{client: c, loop: c.loop, resp3: c.resp3}
		for kind := range c.sub.names {
			c.sub.names[kind] = make(map[string]struct{})
		}
		ps := &c.server.pubsub
		ps.mu.Lock()
		ps.subscribers[c.sub] = struct{}{}
		ps.byID[c.id] = c.sub
		ps.mu.Unlock()
	}
	return c.sub
}

// subscribing reports whether the client has any subscription.
func (c *client) subscribing() bool {
	return c.sub != nil && len(c.sub.names[channels])+len(c.sub.names[patterns])+len(c.sub.names[shardChannels]) > 0
}

// subscribe adds a subscription. It returns an error if there is no memory for the name.
func (c *client) subscribe(kind topicKind, name []byte) error {
	sub := c.subscriber()
	if _, ok := sub.names[kind][string(name)]; ok {
		return nil
	}
	size := int64(2*len(name) + subscriptionCost)
	if !c.server.large.take(size) {
		return errTooMuchInput
	}
	sub.bytes += size
	key := string(name)
	sub.names[kind][key] = struct{}{}
	c.subscriptions[kind].Store(int32(len(sub.names[kind])))
	c.server.pubsub.join(sub, kind, key)
	return nil
}

// unsubscribe removes a subscription, if the client has it. Then it moves the messages that
// were published before to the replies, so that none follows the confirmation.
func (c *client) unsubscribe(kind topicKind, name string) {
	sub := c.sub
	if sub == nil {
		return
	}
	if _, ok := sub.names[kind][name]; !ok {
		return
	}
	t := c.server.pubsub.leave(sub, kind, name)
	delete(sub.names[kind], name)
	c.subscriptions[kind].Store(int32(len(sub.names[kind])))
	size := int64(2*len(name) + subscriptionCost)
	sub.bytes -= size
	c.server.large.give(size)
	if c.executing {
		// The reply of EXEC must stay whole. Messages that were published while it runs count
		// as published afterwards.
		sub.remove(t)
	} else {
		c.collect()
	}
}

// unsubscribeAll removes all subscriptions.
func (c *client) unsubscribeAll() {
	if c.sub == nil {
		return
	}
	for kind := range topicKinds {
		for name := range c.sub.names[kind] {
			c.unsubscribe(kind, name)
		}
	}
}

// speak sets the version of the protocol. Messages that were published before are sent in the
// previous version.
func (c *client) speak(resp3 bool) {
	if c.sub != nil && c.resp3 != resp3 {
		ps := &c.server.pubsub
		ps.mu.Lock()
		c.sub.resp3 = resp3
		ps.mu.Unlock()
		c.collect()
	}
	c.resp3 = resp3
}

// collect moves the queue to the replies, unless EXEC runs, whose reply must stay whole, or a command
// whose reply is dropped.
func (c *client) collect() {
	sub := c.sub
	if sub == nil || c.executing || c.dropping {
		return
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, m := range sub.queue[sub.head:] {
		c.out = append(c.out, m.data[sub.at:]...)
		sub.at = 0
	}
	sub.clear()
}

// endSubscriptions ends a connection's subscriptions with the connection.
func (c *client) endSubscriptions() {
	sub := c.sub
	if sub == nil {
		return
	}
	sub.mu.Lock()
	sub.gone = true
	sub.clear()
	sub.mu.Unlock()
	c.unsubscribeAll()
	ps := &c.server.pubsub
	ps.mu.Lock()
	delete(ps.subscribers, sub)
	delete(ps.byID, c.id)
	ps.mu.Unlock()
}

// offer appends a message to the queue and reports whether it did. It disconnects the client if
// the queue is too long, or if m is nil, which stands for a message without room in the budget.
// If a loop is to be notified, offer returns the loop. The caller must hold pubsub.mu, and have
// taken entryCost bytes of the budget.
func (sub *subscriber) offer(m *message) (l *loop, ok bool) {
	c := sub.client
	sub.mu.Lock()
	defer sub.mu.Unlock()
	switch {
	case sub.gone:
		return nil, false
	case m == nil:
		sub.hangUp()
		return nil, false
	}
	m.refs.Add(1)
	sub.append(m)
	if sub.tooLong(c.output.queued.Add(m.cost())) {
		sub.hangUp()
		return nil, true
	}
	switch {
	case sub.notified:
	case sub.loop != nil:
		sub.notified = true
		return sub.loop, true
	case sub.reading:
		sub.notified = true
		if err := c.conn.SetReadDeadline(longAgo); err != nil { // the connection is ending
			c.server.opts.Logger.Debug("notifying a subscriber", "client", c.id, "err", err)
		}
	}
	return nil, true
}

// append appends to the queue, and reuses the room of messages that were sent. The caller must
// hold sub.mu.
func (sub *subscriber) append(m *message) {
	if len(sub.queue) == cap(sub.queue) && sub.head > len(sub.queue)/2 {
		n := copy(sub.queue, sub.queue[sub.head:])
		clear(sub.queue[n:])
		sub.queue, sub.head = sub.queue[:n], 0
	}
	sub.queue = append(sub.queue, m)
}

// tooLong reports whether a queue of n bytes exceeds the limits. The caller must hold sub.mu.
func (sub *subscriber) tooLong(n int64) bool {
	limits := sub.client.server.pubsub.limits.Load()
	if limits.soft == 0 || n <= limits.soft {
		sub.over = time.Time{}
		return limits.hard != 0 && n > limits.hard
	}
	now := time.Now()
	if sub.over.IsZero() {
		sub.over = now
	}
	return limits.hard != 0 && n > limits.hard || now.Sub(sub.over) > limits.softFor
}

// disconnect disconnects a client that does not read its messages.
func (sub *subscriber) disconnect() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if !sub.gone {
		sub.hangUp()
	}
}

// hangUp closes the connection and empties the queue. The owner sees the end of the connection.
// The caller must hold sub.mu.
func (sub *subscriber) hangUp() {
	c := sub.client
	c.server.counts.slow.Add(1)
	c.server.opts.Logger.Debug("a subscriber does not read its messages", "client", c.id, "bytes", c.output.queued.Load())
	sub.gone = true
	sub.clear()
	if err := hangUp(c.conn); err != nil {
		c.server.opts.Logger.Debug("ending a client", "client", c.id, "err", err)
	}
}

// clear empties the queue. The caller must hold sub.mu.
func (sub *subscriber) clear() {
	for _, m := range sub.queue[sub.head:] {
		sub.drop(m)
	}
	sub.queue, sub.head, sub.at = nil, 0, 0
	sub.notified = false
}

// drop gives up a message that has left the queue.
func (sub *subscriber) drop(m *message) {
	ps := &sub.client.server.pubsub
	sub.client.output.queued.Add(-m.cost())
	ps.room.give(entryCost)
	ps.release(m)
}

// remove removes a topic's messages from the queue, none of which is sent in part.
func (sub *subscriber) remove(t *topic) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	kept := sub.queue[:sub.head]
	for _, m := range sub.queue[sub.head:] {
		if m.topic == t {
			sub.drop(m)
		} else {
			kept = append(kept, m)
		}
	}
	clear(sub.queue[len(kept):])
	sub.queue = kept
}

// inPart reports whether a message is sent in part. Nothing else may be sent then.
func (sub *subscriber) inPart() bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.at > 0
}

// next returns bytes at the front of the queue, none if the queue is empty: a part of a message,
// which it holds, or several messages, in the client's buffer for replies, which must be empty.
// After the bytes were sent, sent must be called.
func (sub *subscriber) next() (b []byte, held *message) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.head == len(sub.queue) {
		sub.notified = false
		return nil, nil
	}
	first := sub.queue[sub.head]
	rest := first.data[sub.at:]
	if sub.head+1 == len(sub.queue) || len(rest)+len(sub.queue[sub.head+1].data) > joinedMessages {
		first.refs.Add(1) // the queue may be cleared meanwhile
		return rest[:min(len(rest), outputChunk)], first
	}
	buf := append(sub.client.out[:0], rest...)
	for _, m := range sub.queue[sub.head+1:] {
		if len(buf)+len(m.data) > joinedMessages {
			break
		}
		buf = append(buf, m.data...)
	}
	sub.client.out = buf[:0]
	return buf, nil
}

// sent removes n bytes, which next has returned, from the queue.
func (sub *subscriber) sent(n int, held *message) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if held != nil {
		sub.client.server.pubsub.release(held)
	}
	for n += sub.at; !sub.gone && sub.head < len(sub.queue); sub.head++ {
		m := sub.queue[sub.head]
		if n < len(m.data) {
			break
		}
		n -= len(m.data)
		sub.queue[sub.head] = nil
		sub.drop(m)
	}
	sub.at = n
	if sub.head == len(sub.queue) {
		sub.queue, sub.head, sub.at = sub.queue[:0], 0, 0
		if cap(sub.queue) > keptQueue {
			sub.queue = nil
		}
	}
}

// joinedMessages is the most bytes of messages that are sent together. A buffer for them grows
// to restingOutput at most.
const joinedMessages = restingOutput / 2

// keptQueue is the most messages for which an empty queue keeps room.
const keptQueue = 64

// ownedBy sets the loop that owns the connection, nil for a goroutine, and reports whether
// there are messages to send. The new owner must call it before it waits.
func (sub *subscriber) ownedBy(l *loop) (waiting bool) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.loop, sub.notified = l, false
	return sub.head < len(sub.queue)
}

// isOwnedBy reports whether a loop owns the connection.
func (sub *subscriber) isOwnedBy(l *loop) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.loop == l
}

// errMessages is returned instead of input when there are messages to send.
var errMessages = errors.New("resp: there are messages to send")

// receive waits for input or, with the error errMessages, for messages.
func (c *client) receive() error {
	sub := c.sub
	if sub == nil {
		return c.in.fill()
	}
	sub.mu.Lock()
	sub.reading = sub.head == len(sub.queue)
	ready := !sub.reading
	sub.mu.Unlock()
	if ready {
		return errMessages
	}
	err := c.in.fill()
	sub.mu.Lock()
	interrupted := sub.notified
	sub.reading, sub.notified = false, false
	sub.mu.Unlock()
	if !interrupted {
		return err
	}
	if isTimeout(err) && !c.server.closing.Load() {
		err = errMessages
	}
	return errors.Join(err, c.setReadDeadline(c.readUntil))
}

// pushFor is the time after which a goroutine that sends messages looks for input, which it
// reads ahead meanwhile.
const pushFor = 2 * aheadAfter

// push sends the queue, or the first messages of it if that takes longer than pushFor. A client that does
// not read within Options.WriteTimeout is disconnected.
func (c *client) push() {
	if c.sub == nil || c.output.queued.Load() == 0 {
		return
	}
	c.beginWrite()
	defer c.endWrite()
	began := time.Now()
	for now := began; !c.quit && (now.Sub(began) < pushFor || c.sub.inPart()); now = time.Now() {
		b, held := c.sub.next()
		if len(b) == 0 {
			break
		}
		if len(b) > plainReplies {
			c.plain = 0
		}
		c.output.since.Store(now.UnixNano())
		n := 0
		if c.send(b, now) {
			n = len(b)
		}
		c.sub.sent(n, held)
	}
	c.output.since.Store(0)
}

// tryPush is push without waiting, for loops. It reports whether the whole queue is sent.
func (c *client) tryPush() (done bool, err error) {
	if c.sub == nil {
		return true, nil
	}
	for total := 0; total < fullOutput; {
		b, held := c.sub.next()
		if len(b) == 0 {
			return true, nil
		}
		n, err := c.transmit(b)
		c.sub.sent(n, held)
		if err != nil || n < len(b) {
			return false, err
		}
		total += n
	}
	return false, nil
}
