package resp

import (
	"errors"

	"github.com/redykv/redykv/kv"
)

// The store has no records of keys of 64 KiB and more, nor records larger than a page of its log.
//
//   - A read of a key that is too long finds nothing, as in Redis: absent.
//   - A command that would write a key that is too long is refused before it changes anything, and so are
//     MSET and MSETNX with a value that is too large: oversize.
//
// Other values need no look beforehand. A command that changes one record changes it or fails, and one
// that changes several reads all, checks the records that it would write, and only then writes (storeAll),
// or writes the one that may be too large first (relay).

// storedMore is the most bytes by which a record's key or value is longer than the client's.
const storedMore = markSize + 1

// shortRequest returns a number of bytes. In a request of at most that many, no argument is too long for
// a key of the store or too large for a value.
func shortRequest(store *kv.Store) int {
	n := 1 << 15
	for n > 0 && store.CheckSize(n+storedMore, n+storedMore) != nil {
		n /= 2
	}
	return n
}

// oversize returns the error reply to a command that would write a record that the store refuses for
// the size of its key, or of a value of MSET, or else "".
func (c *client) oversize(cmd *command, r request) (refusal string) {
	if cmd.flags&flagWrite == 0 || len(r.data) <= c.server.short {
		return ""
	}
	store, n := c.server.store, 0
	for key := range cmd.keys.of(r) {
		size, err := len(storedKey(c.db, key)), error(nil)
		switch value := 2*n + 2; {
		case cmd.keys == evenKeys && value < r.len():
			err = store.CheckSize(size, len(storedString(r.arg(value))))
		case cmd.use(n, r).access&AccessWrite != 0:
			err = store.CheckKey(size)
		}
		if err != nil {
			return storeError(err)
		}
		n++
	}
	return ""
}

// absent makes reads that the store has refused for the size of their keys reads that have found
// nothing. The operations have run with the result err; absent returns what that is now.
func absent(ops []kv.Op, err error) error {
	if err == nil {
		return nil
	}
	var other error
	for i := range ops {
		op := &ops[i]
		if op.Kind == kv.OpRead && errors.Is(op.Err, kv.ErrBadSize) {
			op.Err = kv.ErrNotFound
		}
		if other == nil && !errors.Is(op.Err, kv.ErrNotFound) {
			other = op.Err
		}
	}
	if errors.Is(err, kv.ErrBadSize) { // which is that of an operation
		return other
	}
	return err
}
