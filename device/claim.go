package device

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// ErrClaimed means that a device, or a part of it, belongs to another store.
var ErrClaimed = errors.New("device: in use by another store")

// Composite is a Device that stores its bytes in others.
type Composite interface {
	// Parts returns these devices, and other objects that only one device may use.
	Parts() []any
}

// claims are the devices and parts that have an owner, with the claim of that owner.
var claims struct {
	sync.Mutex
	owners map[any]*claim
}

type claim struct{ keys []any }

// Claim gives the caller exclusive use of a device and all its parts until release. It
// returns ErrClaimed if one of them is in use: two logs in one device would overwrite each
// other.
func Claim(dev Device) (release func(), err error) {
	claims.Lock()
	defer claims.Unlock()
	if claims.owners == nil {
		claims.owners = make(map[any]*claim)
	}
	c := new(claim)
	if err := c.take(dev); err != nil {
		c.release()
		return nil, err
	}
	return func() {
		claims.Lock()
		defer claims.Unlock()
		c.release()
	}, nil
}

// take adds key and its parts to the claim. The caller holds the lock, as it does for release
// and abandon.
func (c *claim) take(key any) error {
	if single(key) {
		if claims.owners[key] != nil {
			return fmt.Errorf("%w: %s", ErrClaimed, describe(key))
		}
		claims.owners[key] = c
		c.keys = append(c.keys, key)
	}
	for _, part := range partsOf(key) {
		if err := c.take(part); err != nil {
			return fmt.Errorf("%s: %w", describe(key), err)
		}
	}
	return nil
}

func (c *claim) release() {
	for _, key := range c.keys {
		if claims.owners[key] == c {
			delete(claims.owners, key)
		}
	}
	c.keys = nil
}

// abandon takes a device and its parts from their owners.
func abandon(key any) {
	if single(key) {
		delete(claims.owners, key)
	}
	for _, part := range partsOf(key) {
		abandon(part)
	}
}

// single reports whether equal keys are the same object: pointers to a non-empty type are.
func single(key any) bool {
	t := reflect.TypeOf(key)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Size() > 0
}

func partsOf(key any) []any {
	if c, ok := key.(Composite); ok {
		return c.Parts()
	}
	return nil
}

// describe names a device or a part for an error.
func describe(key any) string {
	if s, ok := key.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", key)
}

// Parts implements Composite.
func (t *Tiered) Parts() (parts []any) {
	for _, tr := range t.tiers {
		parts = append(parts, tr.dev)
	}
	return parts
}

// Parts implements Composite.
func (f *Faulty) Parts() []any { return []any{f.inner} }
