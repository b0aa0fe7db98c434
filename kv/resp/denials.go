package resp

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The log of commands and logins that were refused, which ACL LOG shows.

const (
	defaultDenials = 128     // the default of acllog-max-len
	maxDenials     = 1 << 16 // its limit
	defaultLogged  = 10      // entries of ACL LOG without a count
	mostDenied     = 1 << 10 // bytes of a key, or another object, that are kept
	// denialsJoin is how long a refusal counts for the entry of an equal one.
	denialsJoin = time.Minute
)

// denials are the latest refusals, the newest first.
type denials struct {
	most atomic.Int64

	mu   sync.Mutex // guards the fields below
	list []*denied
	next int64 // number of the next entry
}

// denied is an entry: equal refusals within a minute.
type denied struct {
	denial
	context, user    string
	client           string // the line of CLIENT LIST at the last refusal
	id, count        int64
	created, updated time.Time
}

// add adds a refusal of a client. user is the name of its user, or of the user that it tried to become.
func (ds *denials) add(c *client, d denial, user string) {
	most := ds.most.Load()
	if most == 0 {
		return
	}
	in := "toplevel"
	switch {
	case c.scripting:
		in = "lua"
	case c.executing, c.multi != nil:
		in = "multi"
	}
	if len(d.object) > mostDenied {
		d.object = strings.Clone(d.object[:mostDenied])
	}
	line, now := c.line(request{}), time.Now()
	line = line[:len(line)-1]
	ds.mu.Lock()
	defer ds.mu.Unlock()
	at := slices.IndexFunc(ds.list, func(e *denied) bool {
		return e.denial == d && e.context == in && e.user == user && now.Sub(e.updated) <= denialsJoin
	})
	if at >= 0 {
		e := ds.list[at]
		e.count, e.updated, e.client = e.count+1, now, line
		ds.list = slices.Insert(slices.Delete(ds.list, at, at+1), 0, e)
		return
	}
	ds.list = slices.Insert(ds.list, 0, &denied{denial: d, context: in, user: user, client: line, id: ds.next, count: 1, created: now, updated: now})
	ds.next++
	ds.list = ds.list[:min(len(ds.list), int(most))]
}

func (ds *denials) reset() {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.list = nil
}

// resize sets the most entries.
func (ds *denials) resize(most int64) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.most.Store(most)
	ds.list = slices.Clip(ds.list[:min(len(ds.list), int(most))])
}

// append appends the reply of ACL LOG: the newest n entries.
func (ds *denials) append(out []byte, resp3 bool, n int64) []byte {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	list := ds.list[:min(int64(len(ds.list)), n)]
	out = appendArray(out, len(list))
	for _, e := range list {
		out = appendMap(out, resp3, 10)
		out = appendInt(appendBulk(out, "count"), e.count)
		for _, pair := range [][2]string{{"reason", e.reason}, {"context", e.context}, {"object", e.object}, {"username", e.user}} {
			out = appendBulk(appendBulk(out, pair[0]), pair[1])
		}
		out = appendDouble(appendBulk(out, "age-seconds"), resp3, time.Since(e.created).Seconds())
		out = appendBulk(appendBulk(out, "client-info"), e.client)
		out = appendInt(appendBulk(out, "entry-id"), e.id)
		out = appendInt(appendBulk(out, "timestamp-created"), e.created.UnixMilli())
		out = appendInt(appendBulk(out, "timestamp-last-updated"), e.updated.UnixMilli())
	}
	return out
}
