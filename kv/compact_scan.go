package kv

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"

	"github.com/redykv/redykv/hlog"
)

// keyDigest stands for a key in a table of very many: 128 bits, by hashes whose
// seeds nobody knows, so that no two keys have the same.
type keyDigest [2]uint64

// keyTable is the newest record of each key in a part of the log.
type keyTable struct {
	seeds   [2]maphash.Seed
	newest  map[keyDigest]int64
	maximum int
}

// errTableFull ends a walk whose keys are to be put into the table.
var errTableFull = errors.New("kv: key table full")

// keyTableEntry is about what an entry takes in bytes.
const keyTableEntry = 64

func newKeyTable(memory int64) *keyTable {
	return &keyTable{
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		newest:  make(map[keyDigest]int64),
		maximum: int(memory / keyTableEntry),
	}
}

func (t *keyTable) digest(key []byte) keyDigest {
	return keyDigest{maphash.Bytes(t.seeds[0], key), maphash.Bytes(t.seeds[1], key)}
}

// scan copies what is live in a part of the region, by scan: first it notes the
// newest record there of each key, then it crosses out those of which the log
// behind has another, then it copies the rest. If the table gets full, the part
// ends early, at the page that until is.
func (c *compactor) scan(ctx context.Context, from, to int64) (until int64, err error) {
	table := newKeyTable(c.opts.Memory)
	until = to
	err = c.walk(ctx, from, to, func(address int64, im hlog.Image) error {
		if page := c.page(address); page >= c.page(from)+int64(c.st.log.PageSize()) && len(table.newest) >= table.maximum {
			until = page
			return errTableFull
		}
		table.newest[table.digest(im.Key)] = address
		return nil
	})
	if err != nil && !errors.Is(err, errTableFull) {
		return until, err
	}
	if until < to { // a part of that page may be in the table
		maps.DeleteFunc(table.newest, func(_ keyDigest, address int64) bool { return address >= until })
	}
	tail := c.st.log.SettleTo(0)
	err = c.walk(ctx, until, tail, func(_ int64, im hlog.Image) error {
		delete(table.newest, table.digest(im.Key))
		return nil
	})
	if err != nil {
		return until, err
	}
	return until, c.copy(ctx, from, until, func(address int64, im hlog.Image) (trace, bool) {
		if table.newest[table.digest(im.Key)] != address {
			return trace{}, false
		}
		// No other record of the key below the tail: chains are followed down to there.
		return trace{source: address, floor: tail, below: hlog.MaxAddress}, true
	})
}
