package resp

import (
	"cmp"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// What happens to keys is told to those who asked: subscribers of keyspace notifications, and
// clients that track the keys in their caches. A batch notes which command each of its operations
// is part of. After the batch has run, noteChanges reads from the operations' results what they
// did. Without anybody who asked, that is one load for each batch.
//
// The operations of a connection are told in their order. If connections change a key at the same
// time, they may be told in another order than the store has carried them out.

// changes says who wants to know about changes of keys.
type changes struct {
	on      atomic.Bool   // somebody does
	classes atomic.Uint32 // a set of eventClass that notifications are sent for
	tracked atomic.Int64  // clients with tracking
}

// update sets on after a change of the other fields. A batch looks at on after it has run, so one that
// was not seen has changed its keys before update returns.
func (cs *changes) update() { cs.on.Store(cs.classes.Load() != 0 || cs.tracked.Load() > 0) }

// eventClass is a set of classes of events.
type eventClass uint32

const (
	classKeyspace eventClass = 1 << iota // send to channels named after keys
	classKeyevent                        // send to channels named after events
	classGeneric
	classString
	classList
	classSet
	classHash
	classSortedSet
	classExpired
	classEvicted
	classStream
	classMiss
	classModule
	classNew

	classAll = classGeneric | classString | classList | classSet | classHash | classSortedSet | classExpired | classEvicted | classStream | classModule
)

// classLetters are the letters of CONFIG SET notify-keyspace-events, in the order in which CONFIG GET
// lists them.
var classLetters = []struct {
	letter byte
	class  eventClass
}{
	{'A', classAll}, {'g', classGeneric}, {'$', classString}, {'l', classList}, {'s', classSet}, {'h', classHash}, {'z', classSortedSet},
	{'x', classExpired}, {'e', classEvicted}, {'t', classStream}, {'d', classModule}, {'n', classNew},
	{'K', classKeyspace}, {'E', classKeyevent}, {'m', classMiss},
}

// parseClasses parses the letters.
func parseClasses(letters string) (of eventClass, ok bool) {
	for i := range len(letters) {
		class := eventClass(0)
		for _, l := range classLetters {
			if l.letter == letters[i] {
				class = l.class
			}
		}
		if class == 0 {
			return 0, false
		}
		of |= class
	}
	return of, true
}

// String returns the letters.
func (of eventClass) String() string {
	var b strings.Builder
	left := of
	for _, l := range classLetters {
		if left&l.class == l.class {
			b.WriteByte(l.letter)
			left &^= l.class
			if l.class == classAll {
				left &^= classNew // Redis does not list it then
			}
		}
	}
	return b.String()
}

func (cs *changes) classesText() string { return eventClass(cs.classes.Load()).String() }

// errEventClass is Redis's.
var errEventClass = errors.New("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.") //nolint:staticcheck // Redis's words

func (cs *changes) setClasses(letters string) error {
	of, ok := parseClasses(letters)
	if !ok {
		return errEventClass
	}
	cs.classes.Store(uint32(of))
	cs.update()
	return nil
}

// wants reports whether notifications are sent for one of the classes.
func (cs *changes) wants(of eventClass) bool {
	on := eventClass(cs.classes.Load())
	return on&of != 0 && on&(classKeyspace|classKeyevent) != 0
}

// looksBack reports whether writes have to find out what their key held: whether it is new, or had
// expired.
func (cs *changes) looksBack() bool { return cs.classes.Load() != 0 && cs.wants(classNew|classExpired) }

// keyEvents are the events of a command for a key that it writes, and for one that it removes. A key of
// a collection is removed by a change: both events are sent.
type keyEvents struct {
	class         eventClass
	put, removed  string
	both, expires bool // expires: put is "expire", or "persist" if the key does not expire any more
	replaces      bool // a key that is written counts as new
	gets          bool // a key that it does not find counts as a miss
	always        bool // put is sent also if nothing of the key has changed
}

// groupEvents are the classes of groups of commands; other groups are generic.
var groupEvents = map[string]eventClass{
	groupString: classString, groupBitmap: classString, groupHash: classHash, groupList: classList, groupSet: classSet, groupSorted: classSortedSet,
}

// putEvents are the events of commands that are not named after the command.
var putEvents = map[string]string{
	"setnx": "set", "setex": "set", "psetex": "set", "getset": "set", "mset": "set", "msetnx": "set", "incr": "incrby", "decr": "incrby", "decrby": "incrby",
	"hmset": "hset", "hsetnx": "hset", "lpushx": "lpush", "rpushx": "rpush", "zincrby": "zincr", "bitfield": "setbit", "bitop": "set",
	"del": "", "unlink": "", "getdel": "", "rename": "", "renamenx": "", "copy": "", "move": "", "flushdb": "",
}

// events returns the command's events.
func (cmd *command) events() keyEvents {
	e := keyEvents{class: classGeneric, put: cmd.name, removed: "del"}
	if class, ok := groupEvents[cmd.group]; ok {
		e.class, e.both = class, class != classString && !strings.HasSuffix(cmd.name, "store")
	}
	if put, ok := putEvents[cmd.name]; ok {
		e.put = put
	}
	switch cmd.name {
	case "ltrim":
		e.always = true
	case "rename", "renamenx", "move", "copy", "restore":
		e.replaces = true
	case "getset", "getdel", "getex", "bitop", "bitfield":
		e.gets = true
	}
	switch cmd.name {
	case "expire", "pexpire", "expireat", "pexpireat", "getex":
		e.class, e.put, e.expires = classGeneric, "expire", true
	case "rename", "renamenx", "move", "flushdb":
		e.removed = "" // they tell it themselves, or not at all
	}
	return e
}

// noteChanges tells what a batch has done. It may write the records of keys that have expired.
func (c *client) noteChanges(w *worker) {
	cs := &c.server.changes
	var changed [][]byte // keys, for clients that track them
	tracked := cs.tracked.Load() > 0
	for i := range w.ops {
		op := &w.ops[i]
		if op.Err != nil && !errors.Is(op.Err, kv.ErrNotFound) || c.server.store.IsInner(op.Key) {
			continue
		}
		cmd := c.server.table.all[w.by[i]]
		if c.noteChange(w, i, cmd) && tracked && cmd.name != "flushdb" { // which tells it at once
			_, key := shownKey(op.Key)
			changed = append(changed, key)
		}
	}
	if len(changed) > 0 {
		c.server.tracking.invalidate(changed, c)
	}
}

// noteChange tells what an operation has done, and reports whether it has changed its key.
func (c *client) noteChange(w *worker, i int, cmd *command) (changed bool) {
	op, s := &w.ops[i], c.server
	switch op.Kind {
	case kv.OpRead:
		if op.Err == nil {
			if c.tracker != nil && op.Expires != 0 {
				s.expirer.watch(op.Key, op.Expires)
			}
			return false
		}
		c.lapse(w, op.Key)
		if (cmd.flags&flagReadOnly != 0 || cmd.tells.gets) && !strings.HasPrefix(cmd.name, "object|") && cmd.name != "memory|usage" {
			c.tell(classMiss, "keymiss", op.Key)
		}
		return false
	case kv.OpUpsert:
		c.tellPut(cmd, op.Key, op.Expires, op.Expires)
		s.expirer.watch(op.Key, op.Expires) // last: it may tell at once that the key has expired
		return true
	case kv.OpRMW:
		m := w.mods[i]
		switch {
		case m.lapsed && m.verdict == kv.Keep:
			c.lapse(w, op.Key)
		case m.lapsed:
			c.tell(classExpired, "expired", op.Key)
		}
		if !m.found && (cmd.tells.gets && cmd.group != groupBitmap || m.flags&modGet != 0) {
			c.tell(classMiss, "keymiss", op.Key)
		}
		if cmd.tells.always && m.found && m.refused == "" && !m.changed {
			c.tell(cmd.tells.class, cmd.tells.put, op.Key)
			return true
		}
		switch {
		case !m.changed, m.quiet:
		case m.verdict == kv.Remove:
			if cmd.tells.both {
				c.tell(cmd.tells.class, cmp.Or(m.event, cmd.tells.put), op.Key)
			}
			c.tell(classGeneric, cmd.tells.removed, op.Key)
		default:
			if !m.found || cmd.tells.replaces {
				c.tell(classNew, "new", op.Key)
			}
			if m.event != "" {
				c.tell(cmd.tells.class, m.event, op.Key)
			} else {
				c.tellPut(cmd, op.Key, m.expires, m.ends)
			}
			s.expirer.watch(op.Key, m.ends)
		}
		return m.changed && !m.quiet || m.lapsed
	}
	return false
}

// tellPut tells that a command has written a key. given is the expiry that the command names, ends the
// key's.
func (c *client) tellPut(cmd *command, key []byte, given, ends int64) {
	e := &cmd.tells
	switch {
	case e.expires && ends == 0:
		c.tell(classGeneric, "persist", key)
	case e.expires:
		c.tell(classGeneric, "expire", key)
	default:
		c.tell(e.class, e.put, key)
		if e.put == "set" && given != 0 {
			c.tell(classGeneric, "expire", key)
		}
	}
}

// tell sends the notifications of an event of a record's key. An empty event stands for none.
func (c *client) tell(class eventClass, event string, key []byte) {
	if event != "" && c.server.changes.wants(class) {
		c.server.notify(event, key, c.loop)
	}
}

// notify sends the notifications of an event to subscribers. by is the loop that runs the caller, or
// nil.
func (s *Server) notify(event string, stored []byte, by *loop) {
	on := eventClass(s.changes.classes.Load())
	db, key := shownKey(stored)
	number := formatInt(int64(db))
	if on&classKeyspace != 0 {
		s.pubsub.publish(channels, append([]byte("__keyspace@"+number+"__:"), key...), []byte(event), by)
	}
	if on&classKeyevent != 0 {
		s.pubsub.publish(channels, []byte("__keyevent@"+number+"__:"+event), key, by)
	}
}

// changeUpsert sets a record to m.arg.
func changeUpsert(m *modification) kv.Verdict {
	m.u.New, m.u.Expires = append(m.u.New, m.arg...), m.expires
	return kv.Put
}

// lapse removes the record of a key, if it has expired, and tells that. The batch of w has run.
func (c *client) lapse(w *worker, key []byte) {
	op, gone := lapsing(key)
	if err := w.session.Run(op); err != nil {
		c.server.opts.Logger.Debug("removing an expired key", "err", err)
		return
	}
	if *gone {
		c.server.tellExpired(key, c.loop)
	}
}

// lapsing returns an operation that removes a key's record if it has expired, and then sets gone.
func lapsing(key []byte) (op *kv.Op, gone *bool) {
	gone = new(bool)
	return &kv.Op{Kind: kv.OpRMW, Key: key, Modify: func(u *kv.Update) kv.Verdict {
		if *gone = u.Expired; u.Expired {
			return kv.Remove
		}
		return kv.Keep
	}}, gone
}

// tellExpired tells that the record of a key has been removed because it had expired.
func (s *Server) tellExpired(stored []byte, by *loop) {
	if s.changes.wants(classExpired) {
		s.notify("expired", stored, by)
	}
	if s.changes.tracked.Load() > 0 {
		_, key := shownKey(stored)
		s.tracking.invalidate([][]byte{key}, nil)
	}
}
