package blob

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// prove returns an error unless the bucket holds all that the catalog next names, and next has
// the log without a gap up to an address. It looks at the blobs that old does not name, or at all
// blobs in the bucket before the first catalog is stored, and returns their sizes. What is
// missing is uploaded again next time.
func (d *Device) prove(ctx context.Context, old, next *catalog, end int64) (there map[string]int64, err error) {
	if at := next.reach(); at < end {
		d.uploadFrom(at)
		return nil, fmt.Errorf("blob: catalog %d has the log up to %d only, want %d", next.Number, at, end)
	}
	want := next.blobs()
	if d.up.looked {
		for key := range old.blobs() {
			delete(want, key)
		}
		there, err = d.bucket.sizes(ctx, slices.Collect(maps.Keys(want)))
	} else {
		there, err = d.bucket.list(ctx, "")
	}
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(want, func(key string, size int64) bool {
		has, ok := there[key]
		return ok && has == size
	})
	if len(want) > 0 {
		d.lost(old, want)
		lost := slices.Sorted(maps.Keys(want))
		return nil, fmt.Errorf("blob: the bucket lacks %d blobs of catalog %d, or has them in other lengths: %s", len(lost), next.Number, lost[0])
	}
	return there, nil
}

// lost removes blobs from the catalog, so that they are uploaded again.
func (d *Device) lost(c *catalog, keys map[string]int64) {
	c = c.clone()
	c.Pieces = slices.DeleteFunc(c.Pieces, func(p piece) bool {
		_, lost := keys[p.Key]
		if lost {
			d.uploadFrom(p.From)
		}
		return lost
	})
	maps.DeleteFunc(c.Objects, func(_ string, o stored) bool {
		_, lost := keys[o.Key]
		return lost
	})
	d.catalog.Store(c)
}

// uploadFrom marks the log from an address on as dirty.
func (d *Device) uploadFrom(addr int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log.dirty = min(d.log.dirty, addr)
}
