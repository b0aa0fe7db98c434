package redytier

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/affinity"
)

// clients are a cache's client threads (R40): c of them, each with a session of its
// own, behind the callback API.
//
// How many there are, and how much they have under way, changes with the cache's
// configuration, all at once: a new crew is published, the old one carries out what
// was pushed to it, and the new one begins when the old one has ended. So the calls
// of a handle keep their order though it changes its thread, and none is lost: what
// is called meanwhile waits in the new rings.
type clients struct {
	cache *Cache
	own   *Client // of Cache.Read and so on
	pins  *affinity.Set
	crew  atomic.Pointer[crew]
	next  atomic.Uint32 // handle

	mu      sync.Mutex // held to change the crew
	stopped bool
}

// crew are the threads of a configuration.
type crew []*clientThread

func newClients(c *Cache) (*clients, error) {
	pins, err := affinity.Near(affinity.Mode(c.cfg.Tuning.Pinning))
	if err != nil {
		return nil, err
	}
	k := &clients{cache: c, pins: pins}
	k.own = k.handle()
	first, err := k.hire(c.Configuration())
	if err != nil {
		return nil, err
	}
	k.crew.Store(&first)
	first.start()
	return k, nil
}

func (k *clients) handle() *Client { return &Client{clients: k, number: k.next.Add(1) - 1} }

// hire makes a crew for a configuration, with a session each, that does not run
// yet. Its owner has it take over, or dismisses it.
func (k *clients) hire(c Configuration) (crew, error) {
	var threads crew
	for range c.ClientThreads {
		s, err := k.cache.NewSession(min(c.BatchSize*c.QueueDepth, MaxDepth))
		if err != nil {
			return nil, errors.Join(err, threads.dismiss())
		}
		threads = append(threads, newClientThread(k, s))
	}
	return threads, nil
}

// takeOver makes a crew the cache's only one. It waits for callbacks of the one
// before.
func (k *clients) takeOver(next crew) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errors.Join(ErrDeleted, next.dismiss())
	}
	before := k.crew.Swap(&next)
	err := before.end()
	next.start()
	return err
}

// stop ends the threads: everything in them is called back first, with ErrDeleted,
// for the cache is deleted already.
func (k *clients) stop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	return k.crew.Load().end()
}

func (w crew) start() {
	for _, t := range w {
		go t.run()
	}
}

// end has the threads carry out what they have, and waits for them. They do not wait
// for lost memory, which whoever holds the turn would keep from coming back.
func (w crew) end() error {
	held := false
	for _, t := range w {
		held = t.session.waits.Swap(false) || held
	}
	if held {
		w[0].clients.cache.changed()
	}
	for _, t := range w {
		t.ring.close()
		t.rouse()
	}
	var err error
	for _, t := range w {
		err = errors.Join(err, <-t.ended)
	}
	return err
}

// dismiss ends a crew that never ran.
func (w crew) dismiss() error {
	var err error
	for _, t := range w {
		err = errors.Join(err, t.session.Close())
	}
	return err
}
