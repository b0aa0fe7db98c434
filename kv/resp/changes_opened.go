package resp

import (
	"bytes"

	"github.com/redykv/redykv/kv"
)

// Commands that open collections (opened) note their events while they run, if somebody wants to know.
// The events are told after the collections have been stored and their locks are gone.

// event is an event of a record's key. It counts as a change for clients that track the key, unless it
// is of classMiss.
type event struct {
	class eventClass
	name  string
	key   []byte
}

// noteEvent notes an event of a record's key.
func (c *client) noteEvent(class eventClass, name string, key []byte) {
	if cs := &c.worker.collections; c.server.changes.on.Load() {
		cs.events = append(cs.events, event{class, name, bytes.Clone(key)})
	}
}

// noteMiss notes that a command that reads has not found a record's key.
func (c *client) noteMiss(key []byte) { c.noteEvent(classMiss, "keymiss", key) }

// note notes a change of a collection that existed, and that it is removed if it is empty now.
func (c *client) note(col *collection, class eventClass, name string) {
	if c.noteEvent(class, name, col.key); !col.exists() {
		c.noteEvent(classGeneric, "del", col.key)
	}
}

// noteStored notes that a key holds a result now, or nothing if that is empty.
func (c *client) noteStored(col *collection, class eventClass, name string) {
	switch {
	case col.exists():
		if !col.existed {
			c.noteEvent(classNew, "new", col.key)
		}
		c.noteEvent(class, name, col.key)
	case col.existed:
		c.noteEvent(classGeneric, "del", col.key)
	}
}

// tellNoted tells what the last command with opened has noted; if the command has failed, only which keys
// it has not found. by is the client that the command belongs to.
func (c *client) tellNoted(done bool, by *client) {
	cs := &c.worker.collections
	var changed [][]byte
	for _, e := range cs.events {
		switch {
		case e.class == classMiss:
			c.lapse(c.worker, e.key)
			c.tell(e.class, e.name, e.key)
		case done:
			c.tell(e.class, e.name, e.key)
			_, key := shownKey(e.key)
			changed = append(changed, key)
		}
	}
	clear(cs.events)
	cs.events = cs.events[:0]
	if len(changed) > 0 && c.server.changes.tracked.Load() > 0 {
		c.server.tracking.invalidate(changed, by)
	}
}

// lapseMissing removes the records of keys that have expired, as Redis does before a command changes the
// key. The keys are locked. reads are what was read of the keys.
func (c *client) lapseMissing(reads []kv.Op) {
	for i := range reads {
		if reads[i].Err != nil {
			c.lapse(c.worker, reads[i].Key)
		}
	}
}
