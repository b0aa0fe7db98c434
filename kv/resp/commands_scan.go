package resp

import (
	"context"
	"math/rand/v2"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// The commands on all keys. They go through the store in sessions of its own. A key
// that is there all the while is found. KEYS, which goes through the log, may find one
// twice that compaction moves meanwhile. SCAN goes through the index, in the order of
// the keys' hashes: its cursor is a place in that order, so the server keeps nothing of
// a scan, and neither writers nor compaction have it repeat keys, or go on for ever.

type scanOptions struct {
	match []byte // nil: all
	count int
	typ   string // "": any
}

func scanOptionsOf(r request, i int, types bool) (o scanOptions, err string) {
	o.count = 10
	for ; i < r.len(); i += 2 {
		switch option := r.arg(i); {
		case i+1 == r.len():
			return o, errSyntax
		case is(option, "match"):
			o.match = r.arg(i + 1)
		case is(option, "count"):
			n, ok := parseInt(r.arg(i + 1))
			if !ok {
				return o, errNotInteger
			}
			if n < 1 {
				return o, errSyntax
			}
			o.count = int(min(n, maxScan))
		case types && is(option, "type"):
			var buf [maxName]byte
			if o.typ = string(lower(&buf, r.arg(i+1))); o.typ == "" {
				o.typ = "none"
			}
		default:
			return o, errSyntax
		}
	}
	return o, ""
}

// maxScan is how many keys one SCAN finds, at most, before MATCH and TYPE choose.
const maxScan = 1 << 16

// takes says whether a scan with these options gives a record, and its key.
func (o *scanOptions) takes(rec *kv.Record) (key []byte, ok bool) {
	key = shownKey(rec.Key)
	if o.match != nil && !glob.Match(o.match, key) {
		return nil, false
	}
	if o.typ != "" {
		if t, _ := typed(rec.Value); t.name() != o.typ {
			return nil, false
		}
	}
	return key, true
}

func scan(c *client, r request) {
	at, err := kv.ParseCursor(string(r.arg(1)))
	if err != nil {
		c.fail(errCursor)
		return
	}
	o, refusal := scanOptionsOf(r, 2, true)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	found := c.gather()
	next, err := c.server.store.ScanFrom(at, o.count, func(rec kv.Record) bool {
		key, ok := o.takes(&rec)
		return !ok || found.add(key)
	})
	c.out = appendBulk(appendArray(c.reply(), 2), next.String())
	found.finish(err)
}

func keys(c *client, r request) {
	o := scanOptions{match: r.arg(1)}
	found := c.gather()
	var failed error
	for rec, err := range c.server.store.Scan() {
		if err != nil {
			failed = err
			break
		}
		if key, ok := o.takes(&rec); ok && !found.add(key) {
			break
		}
	}
	c.reply()
	found.finish(failed)
}

// gathering is a reply whose length is known at its end only. Its memory is of
// the budget for large requests.
type gathering struct {
	c     *client
	at    int // length of the client's output before the reply
	keys  []byte
	n     int
	taken int64
	full  bool
}

// gather begins such a reply. It borrows a worker, though the log is gone through in
// a session of the store's own: so no more do that at once than there are workers.
func (c *client) gather() *gathering {
	g := &gathering{c: c, at: len(c.reply())}
	c.borrow()
	return g
}

// gatherStep is what is taken from the budget at once.
const gatherStep = 1 << 20

func (g *gathering) add(key []byte) bool {
	for len(g.keys)+len(key)+32 > int(g.taken)+restingBuffer {
		if !g.c.server.large.take(gatherStep) {
			g.full = true
			return false
		}
		g.taken += gatherStep
	}
	g.keys = appendBulk(g.keys, key)
	g.n++
	return true
}

// finish appends the keys, or instead of all of the reply why there are none.
func (g *gathering) finish(err error) {
	c := g.c
	switch {
	case err != nil:
		c.out = c.out[:g.at]
		c.error("ERR " + err.Error())
	case g.full:
		c.out = c.out[:g.at]
		c.error(errMemory)
	default:
		c.out = append(appendArray(c.out, g.n), g.keys...)
	}
	c.server.large.give(g.taken)
}

// randomKey gives one of the keys that are near some place in the order of hashes.
func randomKey(c *client, _ request) {
	const near = 16
	c.borrow() // as gather does
	var chosen []byte
	n := 0
	at, wrapped := kv.CursorAt(rand.Float64()), false
	for n == 0 {
		next, err := c.server.store.ScanFrom(at, near, func(rec kv.Record) bool {
			if n++; rand.IntN(n) == 0 {
				chosen = append([]byte{}, shownKey(rec.Key)...)
			}
			return true
		})
		switch {
		case err != nil:
			c.fail("ERR " + err.Error())
			return
		case next == 0 && wrapped && n == 0:
			c.out = appendNull(c.reply(), c.resp3)
			return
		case next == 0:
			wrapped = true
		}
		at = next
	}
	c.out = appendBulk(c.reply(), chosen)
}

// dbSize says how many keys there are: at once, if the store counts them.
func dbSize(c *client, _ request) {
	n, _, err := c.server.size()
	if err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	c.out = appendInt(c.reply(), n)
}

// flushAll is FLUSHALL and FLUSHDB.
func flushAll(c *client, r request) {
	if r.len() > 2 || r.len() == 2 && !is(r.arg(1), "sync") && !is(r.arg(1), "async") {
		c.fail(errSyntax)
		return
	}
	c.exclusively(func() {
		if err := c.server.store.Clear(context.Background()); err != nil {
			c.fail("ERR " + err.Error())
			return
		}
		c.owe()
		c.server.watches.flushes.Add(1)
		c.server.giveSpaceBack()
		c.out = appendSimple(c.reply(), "OK")
	})
}

// size is the number of keys, and of those that expire. Where the store does not
// count them, it goes through the log.
func (s *Server) size() (all, expiring int64, err error) {
	all, expiring, counted := s.store.KeyCount()
	if counted {
		return all, expiring, nil
	}
	for rec, err := range s.store.Scan() {
		if err != nil {
			return 0, 0, err
		}
		all++
		if rec.Expires != 0 {
			expiring++
		}
	}
	return all, expiring, nil
}
