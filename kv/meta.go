package kv

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

const (
	metaName   = "store"
	metaFormat = 1
)

// storeMeta is what a store keeps about itself beside its log: how it was made,
// and how far the log is committed. It is written whole and atomically.
type storeMeta struct {
	Format    int   `json:"format"`
	KeySize   int   `json:"key_size"`
	ValueSize int   `json:"value_size"`
	PageSize  int   `json:"page_size"`
	IndexBits int   `json:"index_bits"`
	Begin     int64 `json:"begin"`
	Tail      int64 `json:"tail"`
}

// readMeta returns nil where there is no store on the device, or the device
// keeps nothing over a restart.
func readMeta(dev device.Device) (*storeMeta, error) {
	data, err := dev.ReadMeta(metaName)
	switch {
	case errors.Is(err, device.ErrNoMeta) || errors.Is(err, errors.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("kv: reading the store's metadata: %w", err)
	}
	return parseMeta(data)
}

// parseMeta takes nothing on trust: what it returns, Open can work with.
func parseMeta(data []byte) (*storeMeta, error) {
	m := new(storeMeta)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%w: the store's metadata %q: %w", ErrCorrupt, metaName, err)
	}
	switch {
	case m.Format != metaFormat:
		return nil, fmt.Errorf("%w: the store's metadata %q has format %d, this program reads %d", ErrMismatch, metaName, m.Format, metaFormat)
	case m.KeySize < 0 || m.ValueSize < 0 || (m.KeySize == 0) != (m.ValueSize == 0),
		m.PageSize < hlog.MinPageSize || m.PageSize > hlog.MaxPageSize || m.PageSize&(m.PageSize-1) != 0,
		m.IndexBits < 0 || m.IndexBits > addressBits,
		m.Begin < hlog.FirstAddress || m.Tail < m.Begin || m.Tail >= hlog.MaxAddress:
		return nil, fmt.Errorf("%w: the store's metadata %q: %s", ErrCorrupt, metaName, data)
	}
	return m, nil
}

// match checks options against the store on the device, and takes over from it
// what they leave open.
func (m *storeMeta) match(o *Options) error {
	if o.PageSize == 0 {
		o.PageSize = m.PageSize
	}
	switch {
	case o.KeySize != m.KeySize || o.ValueSize != m.ValueSize:
		return fmt.Errorf("%w: records of %s, opened with %s", ErrMismatch,
			describe(m.KeySize, m.ValueSize), describe(o.KeySize, o.ValueSize))
	case o.PageSize != m.PageSize:
		return fmt.Errorf("%w: pages of %d bytes, opened with %d", ErrMismatch, m.PageSize, o.PageSize)
	}
	return nil
}

func describe(key, value int) string {
	if key == 0 {
		return "variable length"
	}
	return fmt.Sprintf("%d+%d bytes", key, value)
}

// writeMeta says that the log is committed up to tail. On a device that keeps
// nothing there is nobody to tell.
func (st *Store) writeMeta(tail int64) error {
	data, err := json.Marshal(storeMeta{
		Format:    metaFormat,
		KeySize:   st.opts.KeySize,
		ValueSize: st.opts.ValueSize,
		PageSize:  st.log.PageSize(),
		IndexBits: st.indexBits(),
		Begin:     st.log.Begin(),
		Tail:      tail,
	})
	if err == nil {
		err = st.dev.WriteMeta(metaName, data)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("writing the store's metadata: %w", err)
	}
	return nil
}
