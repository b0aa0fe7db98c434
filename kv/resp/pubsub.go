package resp

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// A message is published in two steps. The publisher's goroutine encodes it once for each
// version of the protocol and appends it to the queue of each subscriber (subscriber.go). Then
// the owner of the subscriber's connection, a loop or a goroutine, sends the queue.
//
// One mutex orders all messages, so all subscribers receive them in the same order, as with
// Redis: in particular, a client that publishes after it has received a message publishes
// after that message for everyone. The publisher never waits for a subscriber. A subscriber
// that does not read is disconnected when its queue exceeds the limits of
// client-output-buffer-limit, or when the budget for replies has no room for more messages.

// topicKind is a kind of names that clients subscribe to.
type topicKind uint8

const (
	channels topicKind = iota
	patterns
	shardChannels

	topicKinds
)

// topicWords are the first elements of what subscribers of each kind receive.
var topicWords = [topicKinds]struct{ subscribe, unsubscribe, message string }{
	channels:      {"subscribe", "unsubscribe", "message"},
	patterns:      {"psubscribe", "punsubscribe", "pmessage"},
	shardChannels: {"ssubscribe", "sunsubscribe", "smessage"},
}

// topic is a channel or pattern with at least one subscriber.
type topic struct {
	name        []byte
	subscribers map[*subscriber]struct{}
}

// pubsub holds all subscriptions of a server. The lock order is pubsub.mu, subscriber.mu,
// loop.mu.
type pubsub struct {
	room   *room // messages take their memory from it
	limits atomic.Pointer[outputLimits]

	mu          sync.Mutex // guards the fields below
	topics      [topicKinds]map[string]*topic
	subscribers map[*subscriber]struct{}
	byID        map[int64]*subscriber // by the client's number
	published   uint64
	delivered   uint64  // to all subscribers together
	woken       []*loop // to be woken when the current publish ends
}

func (ps *pubsub) init(r *room) {
	ps.room = r
	ps.limits.Store(&defaultOutputLimits)
	for kind := range ps.topics {
		ps.topics[kind] = make(map[string]*topic)
	}
	ps.subscribers = make(map[*subscriber]struct{})
	ps.byID = make(map[int64]*subscriber)
}

// message is an encoded message, which its subscribers share.
type message struct {
	data  []byte
	topic *topic
	refs  atomic.Int32 // queues and goroutines that hold it
}

// messageCost is the bytes that a message takes besides its data.
const messageCost = 64

// entryCost is the bytes that an entry of a queue takes, with spare room in the queue.
const entryCost = 32

func (m *message) cost() int64 { return int64(cap(m.data) + messageCost) }

// release gives up one reference to a message.
func (ps *pubsub) release(m *message) {
	if m.refs.Add(-1) == 0 {
		ps.room.give(m.cost())
		ps.room.wake()
	}
}

// publish sends a message to the subscribers of a channel, and returns their number. A client
// that is subscribed to the channel and to patterns counts several times. by is the loop that
// runs the caller, or nil.
func (ps *pubsub) publish(kind topicKind, channel, payload []byte, by *loop) (receivers int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if t := ps.topics[kind][string(channel)]; t != nil {
		receivers = ps.send(t, kind, channel, payload)
	}
	if kind == channels {
		for _, t := range ps.topics[patterns] {
			if matches(t.name, channel) {
				receivers += ps.send(t, patterns, channel, payload)
			}
		}
	}
	ps.published++
	ps.wake(by)
	return receivers
}

// pubsubNumbers are statistics of a pubsub.
type pubsubNumbers struct {
	names                [topicKinds]int
	published, delivered uint64
}

func (ps *pubsub) numbers() (n pubsubNumbers) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for kind := range ps.topics {
		n.names[kind] = len(ps.topics[kind])
	}
	n.published, n.delivered = ps.published, ps.delivered
	return n
}

// wake wakes the loops that have messages to send, except by. The caller must hold ps.mu.
func (ps *pubsub) wake(by *loop) {
	for _, l := range ps.woken {
		if l != by { // a loop sends the messages that it has published before it waits
			l.wake()
		}
	}
	ps.woken = ps.woken[:0]
}

// send appends a message to the queues of a topic's subscribers, and returns their number. The
// caller must hold ps.mu.
func (ps *pubsub) send(t *topic, kind topicKind, channel, payload []byte) (receivers int64) {
	var forms [2]*message // in RESP2 and RESP3
	var full [2]bool      // the budget has no room for the form
	entries := ps.makeRoom(int64(len(t.subscribers) * entryCost))
	if !entries {
		full = [2]bool{true, true}
	}
	for sub := range t.subscribers {
		form := 0
		if sub.resp3 {
			form = 1
		}
		if forms[form] == nil && !full[form] {
			forms[form] = ps.encode(t, kind, channel, payload, sub.resp3)
			full[form] = forms[form] == nil
		}
		switch l, ok := sub.offer(forms[form]); {
		case !ok:
			if entries {
				ps.room.give(entryCost)
			}
			continue
		case l != nil && l.enqueue(sub) && !slices.Contains(ps.woken, l):
			ps.woken = append(ps.woken, l)
		}
		receivers++
	}
	for _, m := range forms {
		if m != nil {
			ps.release(m)
		}
	}
	ps.delivered += uint64(receivers)
	return receivers
}

// encode returns a message with one reference, or nil if the budget has no room for it. The
// caller must hold ps.mu.
func (ps *pubsub) encode(t *topic, kind topicKind, channel, payload []byte, resp3 bool) *message {
	const heads = 4 * len("$-9223372036854775808\r\n\r\n")
	size := heads + len("pmessage") + len(t.name) + len(channel) + len(payload)
	if !ps.makeRoom(int64(size + messageCost)) {
		return nil
	}
	out := make([]byte, 0, size)
	if kind == patterns {
		out = appendPush(out, resp3, 4)
		out = appendBulk(appendBulk(out, topicWords[kind].message), t.name)
	} else {
		out = appendPush(out, resp3, 3)
		out = appendBulk(out, topicWords[kind].message)
	}
	m := &message{data: appendBulk(appendBulk(out, channel), payload), topic: t}
	m.refs.Store(1)
	return m
}

// makeRoom takes n bytes of the budget. If the budget has no room, it disconnects the
// subscribers with the longest queues until it has, or until all queues are empty. The caller
// must hold ps.mu.
func (ps *pubsub) makeRoom(n int64) bool {
	if ps.room.take(n) {
		return true
	}
	type queue struct {
		of    *subscriber
		bytes int64
	}
	var queues []queue
	for sub := range ps.subscribers {
		if bytes := sub.client.output.queued.Load(); bytes > 0 {
			queues = append(queues, queue{sub, bytes})
		}
	}
	slices.SortFunc(queues, func(a, b queue) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, q := range queues {
		q.of.disconnect()
		if ps.room.take(n) {
			return true
		}
	}
	return false
}

// join adds a subscriber to a topic.
func (ps *pubsub) join(sub *subscriber, kind topicKind, name string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := ps.topics[kind][name]
	if t == nil {
		t = &topic{name: []byte(name), subscribers: make(map[*subscriber]struct{})}
		ps.topics[kind][name] = t
	}
	t.subscribers[sub] = struct{}{}
}

// leave removes a subscriber from a topic, which it has joined, and returns the topic.
func (ps *pubsub) leave(sub *subscriber, kind topicKind, name string) *topic {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := ps.topics[kind][name]
	if delete(t.subscribers, sub); len(t.subscribers) == 0 {
		delete(ps.topics[kind], name)
	}
	return t
}

// matches reports whether a pattern matches a channel. As with Redis, only the empty pattern
// matches the empty channel.
func matches(pattern, channel []byte) bool {
	if len(channel) == 0 {
		return len(pattern) == 0
	}
	return glob.Match(pattern, channel)
}

// count returns the number of topics of a kind.
func (ps *pubsub) count(kind topicKind) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.topics[kind])
}

// names returns the names of topics that match a pattern; nil matches all.
func (ps *pubsub) names(kind topicKind, pattern []byte) (names []string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for name, t := range ps.topics[kind] {
		if pattern == nil || matches(pattern, t.name) {
			names = append(names, name)
		}
	}
	return names
}

// subscribed returns the number of a topic's subscribers.
func (ps *pubsub) subscribed(kind topicKind, name []byte) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := ps.topics[kind][string(name)]
	if t == nil {
		return 0
	}
	return len(t.subscribers)
}

// outputLimits are the limits of a subscriber's queue. A subscriber is disconnected when its
// queue exceeds hard bytes, or soft bytes for longer than softFor. 0 bytes mean no limit.
type outputLimits struct {
	hard, soft int64
	softFor    time.Duration
}

// defaultOutputLimits are Redis's defaults.
var defaultOutputLimits = outputLimits{hard: 32 << 20, soft: 8 << 20, softFor: time.Minute}

// limitsText returns the limits as CONFIG GET client-output-buffer-limit does. Other clients
// have no limits of their own: their replies share Options.MaxReplies.
func (ps *pubsub) limitsText() string {
	l := ps.limits.Load()
	return fmt.Sprintf("normal 0 0 0 slave 0 0 0 pubsub %d %d %d", l.hard, l.soft, l.softFor/time.Second)
}

// Redis's errors about client-output-buffer-limit, and one for limits that the server lacks.
const (
	errLimitCount limitError = "Wrong number of arguments in buffer limit configuration."
	errLimitClass limitError = "Invalid client class specified in buffer limit configuration."
	errLimitValue limitError = "Error in hard, soft or soft_seconds setting in buffer limit configuration."
	errLimitOther limitError = "only class pubsub has limits of its own"
)

// limitError says why limits cannot be set.
type limitError string

func (e limitError) Error() string { return string(e) }

// setLimits sets the limits as CONFIG SET client-output-buffer-limit does.
func (ps *pubsub) setLimits(text string) error {
	words := strings.Fields(text)
	if len(words)%4 != 0 {
		return errLimitCount
	}
	limits := *ps.limits.Load()
	for ; len(words) > 0; words = words[4:] {
		class := strings.ToLower(words[0])
		if !slices.Contains([]string{"normal", "replica", "slave", "pubsub"}, class) {
			return errLimitClass
		}
		hard, okHard := parseMemory(words[1])
		soft, okSoft := parseMemory(words[2])
		seconds, err := strconv.ParseInt(words[3], 10, 64)
		if !okHard || !okSoft || err != nil || seconds < 0 || seconds > maxSoftSeconds {
			return errLimitValue
		}
		l := outputLimits{hard, soft, time.Duration(seconds) * time.Second}
		switch {
		case class == "pubsub":
			limits = l
		case l != outputLimits{}:
			return errLimitOther
		}
	}
	ps.limits.Store(&limits)
	return nil
}

// maxSoftSeconds is the most seconds that a time.Duration holds.
const maxSoftSeconds = math.MaxInt64 / int64(time.Second)

// parseMemory parses a number of bytes with one of Redis's units.
func parseMemory(text string) (bytes int64, ok bool) {
	text = strings.ToLower(text)
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"b", 1}} {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = number, u.bytes
			break
		}
	}
	if text == "" { // a unit alone is 0
		return 0, true
	}
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n) * unit, err == nil && int64(n) <= math.MaxInt64/unit
}
