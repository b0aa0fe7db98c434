package resp

import (
	queue "container/heap"
	"context"
	"sync"
	"time"

	"github.com/redykv/redykv/kv"
)

// expirer removes keys when they expire, and tells that. The store itself takes an expired record for
// missing, and does nothing at the moment when it expires. The expirer knows the keys that were given
// an expiry, or read by a client that tracks them, since somebody asked for that. An expired key
// that it does not know is told when a command finds it.
type expirer struct {
	server *Server

	mu      sync.Mutex // guards the fields below
	ends    map[string]int64
	queue   expiries
	bytes   int64       // of the queue, taken from the budget for large requests
	timer   *time.Timer // calls run; nil before the first key
	stopped bool
	running sync.WaitGroup
}

// mostExpiries is the most keys that an expirer knows, mostExpiryKey the bytes of the longest, and
// expiryCost the bytes that one takes besides its name.
const (
	mostExpiries  = 1 << 20
	mostExpiryKey = 1 << 10
	expiryCost    = 96
)

// expiry is a record's key and when it expires, in milliseconds of Unix time.
type expiry struct {
	key string
	at  int64
}

// bytes returns the memory of an expiry.
func (e expiry) bytes() int64 { return int64(len(e.key)) + expiryCost }

// expiries are a heap, the earliest first.
type expiries []expiry

func (q expiries) Len() int           { return len(q) }
func (q expiries) Less(i, j int) bool { return q[i].at < q[j].at }
func (q expiries) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *expiries) Push(e any)        { *q = append(*q, e.(expiry)) }
func (q *expiries) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = expiry{}
	*q = (*q)[:last]
	return e
}

func (x *expirer) init(s *Server) { x.server, x.ends = s, make(map[string]int64) }

// watch makes the expirer look at a record's key at the time; 0: never. A key has one entry: if it
// expires later than expected, the entry is renewed then.
func (x *expirer) watch(key []byte, at int64) {
	if at == 0 || len(key) > mostExpiryKey {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	known, ok := x.ends[string(key)]
	if ok && known <= at || !ok && len(x.ends) >= mostExpiries || len(x.queue) >= 2*mostExpiries || x.stopped {
		return
	}
	e := expiry{string(key), at}
	if x.bytes+e.bytes() > x.server.large.share() || !x.server.large.take(e.bytes()) {
		return
	}
	x.bytes += e.bytes()
	x.ends[e.key] = at
	queue.Push(&x.queue, e)
	if x.queue[0].at == at {
		x.wait()
	}
}

// wait makes run run when the first key expires. The caller holds mu.
func (x *expirer) wait() {
	after := max(time.Until(time.UnixMilli(x.queue[0].at)), 0)
	if x.timer == nil {
		x.timer = time.AfterFunc(after, x.run)
	} else {
		x.timer.Reset(after)
	}
}

// run removes the keys that have expired.
func (x *expirer) run() {
	x.mu.Lock()
	if x.stopped {
		x.mu.Unlock()
		return
	}
	x.running.Add(1)
	x.mu.Unlock()
	defer x.running.Done()
	for {
		key, ok := x.next()
		if !ok {
			return
		}
		if x.server.changes.on.Load() {
			x.remove(key)
		}
	}
}

// next returns a key that has expired. If there is none, it starts the timer for the next one.
func (x *expirer) next() (key string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 && !x.stopped {
		first := x.queue[0]
		if first.at > time.Now().UnixMilli() {
			x.wait()
			return "", false
		}
		queue.Pop(&x.queue)
		x.bytes -= first.bytes()
		x.server.large.give(first.bytes())
		if x.ends[first.key] == first.at {
			delete(x.ends, first.key)
			return first.key, true
		}
	}
	return "", false
}

// remove removes a key if it has expired. If it expires later, it is watched again.
func (x *expirer) remove(key string) {
	op, gone := lapsing([]byte(key))
	later := int64(0)
	check := op.Modify
	op.Modify = func(u *kv.Update) kv.Verdict {
		if later = 0; u.Found {
			later = u.Expires
		}
		return check(u)
	}
	switch err := x.server.store.Run(context.Background(), op); {
	case err != nil:
		x.server.opts.Logger.Debug("removing an expired key", "err", err)
	case *gone:
		x.server.tellExpired([]byte(key), nil)
	default:
		x.watch([]byte(key), later)
	}
}

// stop ends the expirer and waits until it does nothing.
func (x *expirer) stop() {
	x.mu.Lock()
	x.stopped = true
	if x.timer != nil {
		x.timer.Stop()
	}
	x.mu.Unlock()
	x.running.Wait()
}
