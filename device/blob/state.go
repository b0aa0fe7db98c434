package blob

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/device"
)

// stateName is the metadata in which the local device keeps what belongs to it and the
// bucket together. Nobody else has metadata of that name.
const stateName = "blob.state"

// state is what a local device knows about its bucket.
type state struct {
	Store       string `json:"store"`
	Writer      string `json:"writer"`
	SegmentSize int64  `json:"segment_size"`
	Begin       int64  `json:"begin"` // of the log
	// Number is that of the catalog which the device was restored from; a later one
	// that is not its own says that somebody else has the store.
	Number int64 `json:"number,omitempty"`
	// Restoring says that metadata and objects are being fetched: what is there of
	// them may not be all. Restored, that the log below some point is only in the
	// bucket; the local device's Begin is that point from the first Start on, and
	// Started says that this has been.
	Restoring bool `json:"restoring,omitempty"`
	Restored  bool `json:"restored,omitempty"`
	Started   bool `json:"started,omitempty"`
	// Meta are the names of all metadata, which a device cannot list.
	Meta []string `json:"meta"`
	// Replaced are the objects that were made again under a name that the bucket has.
	Replaced []string `json:"replaced,omitempty"`
}

// loadState reads the state; nil where there is none.
func loadState(local device.Device) (*state, error) {
	data, err := local.ReadMeta(stateName)
	if errors.Is(err, device.ErrNoMeta) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	s := &state{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%w: the local device's metadata %s: %w", ErrFormat, stateName, err)
	}
	if err := checkSegmentSize(s.SegmentSize); err != nil || s.Store == "" || s.Writer == "" || s.Begin < 0 {
		return nil, fmt.Errorf("%w: the local device's metadata %s holds %q", ErrFormat, stateName, data[:min(len(data), 200)])
	}
	return s, nil
}

// store keeps the state durably.
func (s *state) store(local device.Device) error {
	data, err := json.Marshal(s)
	if err == nil {
		err = local.WriteMeta(stateName, data)
	}
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	return nil
}

// change stores the state with a change. The caller holds Device.mu. If it fails,
// nothing has changed.
func (d *Device) change(do func(s *state)) error {
	next := *d.state
	next.Meta, next.Replaced = slices.Clone(next.Meta), slices.Clone(next.Replaced)
	do(&next)
	if err := next.store(d.local); err != nil {
		return err
	}
	d.state = &next
	return nil
}

// newName is a name that nobody else has.
func newName() string { return rand.Text()[:16] }
