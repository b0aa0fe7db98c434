package resp

import (
	"bytes"
	"context"
	"iter"
	"math/rand/v2"
	"strconv"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// Commands on all keys. They scan the store in separate sessions and without a worker: nobody waits for
// them, unless they are part of a transaction or a script. A key that exists during the
// whole scan is returned. KEYS scans the log and may return a key twice if compaction moves it
// meanwhile. SCAN scans the index in the order of the keys' hashes. Its cursor is a position
// in that order, so the server keeps no state of a scan, and neither writers nor compaction
// can make it return a key twice or go on for ever. KEYS ends when its client has gone.
//
// The store holds the keys of all databases, and a scan passes those of others. A database
// without keys is not scanned.

type scanOptions struct {
	match []byte // nil: all
	count int
	typ   string // "": any
}

// elementScanOf parses the cursor and the options of HSCAN, SSCAN and ZSCAN.
func elementScanOf(r request) (cursor uint64, o scanOptions, refusal string) {
	cursor, err := strconv.ParseUint(string(r.arg(2)), 10, 64)
	if err != nil {
		return 0, o, errCursor
	}
	o, refusal = scanOptionsOf(r, 3, false)
	return cursor, o, refusal
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

// takes reports whether the options select a record with a client's key.
func (o *scanOptions) takes(rec *kv.Record, key []byte) bool {
	if o.match != nil && !glob.Match(o.match, key) {
		return false
	}
	if o.typ != "" {
		if t, _ := typed(rec.Value); t.name() != o.typ {
			return false
		}
	}
	return true
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
	if c.hasNoKeys() {
		c.out = appendArray(appendBulk(appendArray(c.reply(), 2), "0"), 0)
		return
	}
	c.step(func() {
		found := c.gather()
		next, err := c.server.scanFrom(at, c.db, o.count, func(rec *kv.Record, key []byte) bool {
			return !o.takes(rec, key) || found.add(key)
		})
		c.out = appendBulk(appendArray(c.out, 2), next.String())
		found.finish(err)
	})
}

func keys(c *client, r request) {
	if c.hasNoKeys() {
		c.out = appendArray(c.reply(), 0)
		return
	}
	o := scanOptions{match: r.arg(1)}
	c.scanning(c.server.scans, func(ctx context.Context) {
		found := c.gather()
		var failed error
		for rec, err := range c.server.scanAll(ctx, c.db) {
			if err != nil {
				failed = err
				break
			}
			if _, key := shownKey(rec.Key); o.takes(&rec, key) && !found.add(key) {
				break
			}
		}
		found.finish(failed)
	})
}

// scanAll is the store's ScanContext for the records of a database.
func (s *Server) scanAll(ctx context.Context, db uint8) iter.Seq2[kv.Record, error] {
	return func(yield func(kv.Record, error) bool) {
		for rec, err := range s.store.ScanContext(ctx) {
			if (err != nil || KeyClass(rec.Key) == db) && !yield(rec, err) {
				return
			}
		}
	}
}

// scanFrom is the store's ScanFrom for about count keys of a database.
func (s *Server) scanFrom(at kv.Cursor, db uint8, count int, visit func(rec *kv.Record, key []byte) bool) (kv.Cursor, error) {
	return s.store.ScanFrom(at, s.recordsFor(db, count), func(rec kv.Record) bool {
		in, key := shownKey(rec.Key)
		return in != db || visit(&rec, key)
	})
}

// recordsFor returns the number of records among which about count are of a database. It is count
// if the store does not count keys.
func (s *Server) recordsFor(db uint8, count int) int {
	of, _, counted := s.store.KeyCountOf(db)
	all, _, _ := s.store.KeyCount()
	if !counted || of >= all {
		return count
	}
	return int(min(float64(count)*float64(all)/float64(max(of, 1)), maxScan))
}

// hasNoKeys reports whether the client's database is known to have no keys, without waiting for other
// connections. The counts are exact while none of them runs commands; else the store may miss a key that was
// added while it sums them up, and count the deletion of another one.
func (c *client) hasNoKeys() (none bool) {
	if !c.server.isEmpty(c.db) {
		return false
	}
	if c.flush(); c.locked {
		return c.server.isEmpty(c.db)
	}
	if c.giveBack(); !c.quit {
		c.server.pool.whileIdle(func() { none = c.server.isEmpty(c.db) })
	}
	return none
}

// isEmpty reports whether the store counts keys, and counts none of a database.
func (s *Server) isEmpty(db uint8) bool {
	n, _, counted := s.store.KeyCountOf(db)
	return counted && n == 0
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

// gather begins a reply.
func (c *client) gather() *gathering { return &gathering{c: c, at: len(c.reply())} }

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
		c.error(storeError(err))
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
	if c.hasNoKeys() {
		c.out = appendNull(c.reply(), c.resp3)
		return
	}
	c.scanning(c.server.steps, func(ctx context.Context) {
		switch key, err := c.server.randomKey(ctx, c.db); {
		case err != nil:
			c.fail(storeError(err))
		case key == nil:
			c.out = appendNull(c.reply(), c.resp3)
		default:
			c.out = appendBulk(c.reply(), key)
		}
	})
}

// randomKey returns a key of a database, or nil if it finds none.
func (s *Server) randomKey(ctx context.Context, db uint8) (chosen []byte, err error) {
	const near = 16
	n := 0
	at, wrapped := kv.CursorAt(rand.Float64()), false
	for {
		next, err := s.scanFrom(at, db, near, func(_ *kv.Record, key []byte) bool {
			if n++; rand.IntN(n) == 0 {
				chosen = append([]byte{}, key...)
			}
			return true
		})
		switch {
		case err != nil || n > 0 || next == 0 && wrapped:
			return chosen, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case next == 0:
			wrapped = true
		}
		at = next
	}
}

// dbSize replies with the number of keys in the client's database. It scans the log if the store does
// not count the keys of each.
func dbSize(c *client, _ request) {
	if n, _, counted := c.server.store.KeyCountOf(c.db); counted {
		c.out = appendInt(c.reply(), n)
		return
	}
	c.scanning(c.server.scans, func(ctx context.Context) {
		n, err := c.server.size(ctx, c.db)
		if err != nil {
			c.fail(storeError(err))
			return
		}
		c.out = appendInt(c.reply(), n)
	})
}

// flushRefusal returns the error of FLUSHALL or FLUSHDB with other options than they have, or "".
func flushRefusal(r request) string {
	if r.len() > 2 || r.len() == 2 && !is(r.arg(1), "sync") && !is(r.arg(1), "async") {
		return errSyntax
	}
	return ""
}

func flushAll(c *client, r request) {
	if refusal := flushRefusal(r); refusal != "" {
		c.fail(refusal)
		return
	}
	c.exclusively(c.clearStore)
}

// flushDB implements FLUSHDB: it clears the store if no other database has keys, and otherwise
// deletes the keys of its own one by one.
func flushDB(c *client, r request) {
	if refusal := flushRefusal(r); refusal != "" {
		c.fail(refusal)
		return
	}
	c.exclusively(func() {
		switch {
		case c.server.isAlone(c.db):
			c.clearStore()
		case c.server.isEmpty(c.db):
			c.out = appendSimple(c.reply(), "OK")
		default:
			c.deleteKeys()
		}
	})
}

// clearStore removes the keys of all databases. The client has the store for itself. What it has changed
// before is not committed as a whole with what it changes afterwards.
func (c *client) clearStore() {
	clear := func() error { return c.server.store.Clear(context.Background()) }
	if err := c.worker.session.Outside(clear); err != nil {
		c.fail(storeError(err))
		return
	}
	c.holdReplies(len(c.out))
	c.server.watches.flushes.Add(1)
	c.server.tracking.flushed(c.loop)
	c.server.giveSpaceBack()
	c.out = appendSimple(c.reply(), "OK")
}

// deleteKeys deletes the keys of the client's database.
func (c *client) deleteKeys() {
	for rec, err := range c.server.scanAll(c.server.working, c.db) {
		if err != nil {
			c.failed = err
		}
		if c.failed != nil || c.quit {
			break
		}
		c.modifyRecord(replyPart, bytes.Clone(rec.Key), changeDelete, nil)
	}
	c.flush()
	c.server.tracking.flushed(c.loop)
	c.mark(replyDone, 0)
}

// isAlone reports whether the store counts keys, and has none of other databases. Databases
// beyond Options.Databases count as well.
func (s *Server) isAlone(db uint8) bool {
	for other := range MaxDatabases {
		if other != int(db) && !s.isEmpty(uint8(other)) {
			return false
		}
	}
	return true
}

// size scans the log for the number of keys in a database.
func (s *Server) size(ctx context.Context, db uint8) (n int64, err error) {
	for _, err := range s.scanAll(ctx, db) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
