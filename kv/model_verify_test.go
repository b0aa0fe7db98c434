package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/redykv/redykv/kv/internal/keycount"
)

// verify compares the whole store with the model, by single reads, a batch and a scan.
func (p *player) verify() error {
	want, now := p.total(), p.clock.Load()
	s := p.st.NewSession()
	ops := make([]Op, p.keys+p.counters)
	for n := range uint64(len(ops)) {
		ops[n] = Op{Key: p.rules.key(n)}
	}
	err := s.Do(context.Background(), ops)
	for n := range uint64(len(ops)) {
		op := &ops[n]
		if err == nil {
			err = p.compare(want, now, n, op)
		}
		if err == nil && n%4 == 0 {
			op := Op{Key: op.Key}
			op.Value, op.Err = p.st.Read(context.Background(), op.Key, nil)
			if c, found := want.get(n, now); found {
				op.Expires = c.expires
			}
			err = p.compare(want, now, n, &op)
		}
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	p.quiet = want
	if err := p.countKeys(false); err != nil {
		return err
	}
	return p.iterate(nil)
}

// countKeys compares the number of keys, and of those of each class. Unless settled is set, the
// count may include keys that expired lately.
func (p *player) countKeys(settled bool) error {
	if p.st.keyCounters == nil {
		return nil
	}
	var all keyNumbers
	var classes [keycount.Classes]keyNumbers
	live, now := p.total(), p.clock.Load()
	for n := range live {
		if c, found := live.get(n, now); found {
			all.add(c)
			classes[modelClass(p.rules.key(n))].add(c)
		}
	}
	counted, expiring, _ := p.st.KeyCount()
	if err := all.check(counted, expiring, settled); err != nil {
		return err
	}
	for class := range classes {
		counted, expiring, ok := p.st.KeyCountOf(uint8(class))
		if ok != (p.st.opts.KeyClass != nil) {
			return fmt.Errorf("keys are counted by class: %v", ok)
		}
		if !ok {
			break
		}
		if err := classes[class].check(counted, expiring, settled); err != nil {
			return fmt.Errorf("class %d: %w", class, err)
		}
	}
	return nil
}

// modelClass is the KeyClass of stores that are compared with a model.
func modelClass(key []byte) uint8 { return key[0] % 5 * 50 }

// keyNumbers are a number of keys, and how many of them expire.
type keyNumbers struct{ all, expiring int64 }

func (k *keyNumbers) add(c modelCell) {
	if k.all++; c.expires != 0 {
		k.expiring++
	}
}

// check compares the numbers with those that a store counted.
func (k *keyNumbers) check(all, expiring int64, settled bool) error {
	if all < k.all || expiring < k.expiring || all-k.all != expiring-k.expiring || settled && all != k.all {
		return fmt.Errorf("%d keys, %d of them with an expiry; want %d and %d", all, expiring, k.all, k.expiring)
	}
	return nil
}

func (p *player) compare(want modelState, now int64, n uint64, op *Op) error {
	c, found := want.get(n, now)
	is := sight{modelCell{string(op.Value), op.Expires}, op.Err == nil}
	switch {
	case op.Err != nil && !errors.Is(op.Err, ErrNotFound):
		return fmt.Errorf("reading key %d: %w", n, op.Err)
	case found != is.found, found && is.cell != c:
		return fmt.Errorf("key %d: %v; want %v", n, is, sight{c, found})
	}
	return nil
}

// iterate scans the store. Keys that change meanwhile may be found or not.
func (p *player) iterate(touched map[uint64]bool) error {
	want, now := p.quiet, p.clock.Load()
	left := maps.Clone(want)
	for r, err := range p.st.Scan() {
		if err != nil {
			return err
		}
		n, err := p.rules.number(r.Key)
		if err != nil {
			return err
		}
		if c, found := want.get(n, now); !touched[n] && (!found || c != modelCell{string(r.Value), r.Expires}) {
			return fmt.Errorf("a scan finds key %d at %d: %v; want %v",
				n, r.Address, sight{modelCell{string(r.Value), r.Expires}, true}, sight{c, found})
		}
		delete(left, n)
	}
	for n := range left {
		if c, found := left.get(n, now); found && !touched[n] {
			return fmt.Errorf("a scan misses key %d: %v", n, c)
		}
	}
	return nil
}

// scanning is a scan in steps, with other actions between the steps.
type scanning struct {
	at      Cursor
	under   bool            // the scan has begun
	want    modelState      // state when the scan began
	touched map[uint64]bool // keys that may have changed since
}

// touch records that keys may have changed.
func (c *scanning) touch(keys map[uint64]bool) {
	if c.under {
		maps.Copy(c.touched, keys)
	}
}

// scanOn makes the scan's next step, of about count records. At the end of the scan, all keys
// that existed throughout must have been found.
func (p *player) scanOn(count int) error {
	c := &p.cursor
	if !c.under {
		*c = scanning{under: true, want: p.total(), touched: map[uint64]bool{}}
	}
	var failed error
	now := p.clock.Load()
	next, err := p.st.ScanFrom(c.at, count, func(r Record) bool {
		n, err := p.rules.number(r.Key)
		if err != nil {
			failed = err
		}
		delete(c.want, n)
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if c.at, err = ParseCursor(next.String()); err != nil {
		return err
	}
	if c.at != 0 {
		return nil
	}
	c.under = false
	for n := range c.want {
		if cell, found := c.want.get(n, now); found && !c.touched[n] {
			return fmt.Errorf("a cursor misses key %d: %v", n, cell)
		}
	}
	return nil
}
