package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// record changes the manifest, on the device first. After an error the device
// may have either: whatever the new one names must stay until the next change. A
// device that keeps nothing has nobody to tell.
func (st *Store) record(ctx context.Context, change func(m *manifest.Manifest)) error {
	st.recording.Lock()
	defer st.recording.Unlock()
	m := st.manifest
	m.Checkpoints = slices.Clone(m.Checkpoints)
	change(&m)
	m.Sequence = max(m.Sequence, st.sequence.Load())
	if st.index.Load() != nil {
		m.IndexBits = max(m.IndexBits, st.indexBits())
	}
	data, err := m.Encode()
	// A store can be opened on a disk that is full: that changes nothing.
	if err == nil && (st.uncertain || !bytes.Equal(data, st.written)) {
		err = device.Retry(ctx, func() error { return st.dev.WriteMeta(manifest.Name, data) })
	}
	st.volatile = errors.Is(err, errors.ErrUnsupported)
	st.uncertain = err != nil && !st.volatile
	if st.uncertain {
		return fmt.Errorf("writing the manifest %q: %w", manifest.Name, err)
	}
	st.manifest = m
	if !st.volatile {
		st.written = data
	}
	st.checkpoints.kept.Store(int64(len(m.Checkpoints)))
	st.checkpoints.pinned.Store(max(m.Commit.Begin-m.Begin(), 0))
	return nil
}

// recorded is the manifest as it is on the device. It is not to be changed.
func (st *Store) recorded() manifest.Manifest {
	st.recording.Lock()
	defer st.recording.Unlock()
	return st.manifest
}

// match checks the options against the store on the device, and takes the page size over
// that they leave open.
func (st *Store) match(m *manifest.Manifest) error {
	o := &st.opts
	if o.PageSize == 0 {
		o.PageSize = m.PageSize
	}
	return m.Match(o.KeySize, o.ValueSize, o.PageSize)
}
