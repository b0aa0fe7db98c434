package resp

import (
	"errors"

	"github.com/redykv/redykv/kv"
)

// The store has no records of keys of 64 KiB and more, nor records larger than a page of its log.
// A read of a key that is too long finds nothing, as in Redis: absent.

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
