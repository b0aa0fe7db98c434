// Package redykv opens a key-value store in a directory, the usual way to begin:
//
//	store, err := redykv.OpenDir("data", kv.Options{})
//	…
//	err = store.Upsert(ctx, []byte("greeting"), []byte("hello"))
//	value, err := store.Read(ctx, []byte("greeting"), nil)
//	…
//	err = store.Close()
//
// What the store does is documented in [github.com/redykv/redykv/kv]. A store whose log
// lies on other devices, such as remote memory in front of the SSD, is made of these
// devices with [kv.Open].
package redykv

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// OpenDir opens the store in a directory, which it makes if there is none. opts.Device must
// be nil: the store's device is the directory, opened with the defaults of
// [ssdtier.Options]. [kv.Store.Close] closes both.
func OpenDir(dir string, opts kv.Options) (*kv.Store, error) {
	if opts.Device != nil {
		return nil, errors.New("redykv: OpenDir with Options.Device: the device is the directory; use kv.Open for another one")
	}
	ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("redykv: opening %s: %w", dir, err)
	}
	opts.Device = ssd
	store, err := kv.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("redykv: opening %s: %w", dir, errors.Join(err, ssd.Close()))
	}
	return store, nil
}
