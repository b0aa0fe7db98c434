package resp

import (
	"context"
	"math/rand/v2"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// Commands on all keys. They scan the store in separate sessions. A key that exists during the
// whole scan is returned. KEYS scans the log and may return a key twice if compaction moves it
// meanwhile. SCAN scans the index in the order of the keys' hashes. Its cursor is a position
// in that order, so the server keeps no state of a scan, and neither writers nor compaction
// can make it return a key twice or go on for ever.

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

// maxScan is the most keys that one SCAN reads, before MATCH and TYPE select.
const maxScan = 1 << 16

// takes reports whether the options select a record, and returns its key.
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

// gathering is a reply whose length is unknown until its end. Its memory is charged to the
// budget for large requests.
type gathering struct {
	c     *client
	at    int // length of the client's output before the reply
	keys  []byte
	n     int
	taken int64 // bytes taken from the budget
	full  bool  // the budget was exhausted
}

// gather begins a reply. It borrows a worker that the scan does not use, so that the number of
// workers limits concurrent scans.
func (c *client) gather() *gathering {
	g := &gathering{c: c, at: len(c.reply())}
	c.borrow()
	return g
}

// gatherStep is the number of bytes that are taken from the budget at once.
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

// finish appends the keys, or replaces the whole reply by an error.
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

// randomKey returns a random one of the keys after a random position in the order of hashes.
func randomKey(c *client, _ request) {
	const near = 16
	c.borrow() // limits concurrent scans, see gather
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

// dbSize replies with the number of keys.
func dbSize(c *client, _ request) {
	n, _, err := c.server.size()
	if err != nil {
		c.fail("ERR " + err.Error())
		return
	}
	c.out = appendInt(c.reply(), n)
}

// flushAll implements FLUSHALL and FLUSHDB.
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
		c.holdReplies()
		c.server.watches.flushes.Add(1)
		c.server.giveSpaceBack()
		c.out = appendSimple(c.reply(), "OK")
	})
}

// size returns the number of keys, and of those that expire. It scans the log if the store
// does not count keys.
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
