package kv

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/ssdtier"
)

// OpenDir opens the store in a directory, which it creates if there is none. opts.Device must
// be nil: the store's device is the directory, opened with the defaults of
// [ssdtier.Options]. [Store.Close] closes both. Everything else in this package knows a
// [device.Device] only; a store on other devices is opened with [Open].
func OpenDir(dir string, opts Options) (*Store, error) {
	if opts.Device != nil {
		return nil, errors.New("kv: OpenDir with Options.Device: the device is the directory; use Open for another one")
	}
	ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("kv: opening %s: %w", dir, err)
	}
	opts.Device = ssd
	store, err := Open(opts)
	if err != nil {
		return nil, fmt.Errorf("kv: opening %s: %w", dir, errors.Join(err, ssd.Close()))
	}
	return store, nil
}
