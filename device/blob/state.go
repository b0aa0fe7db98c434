package blob

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/device"
)

// stateName is the name of the metadata in which the local device stores its state. It is
// reserved.
const stateName = "blob.state"

// state is what a local device knows about its bucket.
type state struct {
	Store       string `json:"store"`
	Writer      string `json:"writer"`
	SegmentSize int64  `json:"segment_size"`
	Begin       int64  `json:"begin"` // of the log
	// Number is that of the catalog from which the device was restored. A later one of
	// another writer means that another machine has taken the store.
	Number int64 `json:"number,omitempty"`
	// Uploaded: the bucket has, or had when it was last reachable, a state of the store.
	Uploaded bool `json:"uploaded,omitempty"`
	// First is the tail of a new log: below it there never was anything.
	First int64 `json:"first,omitempty"`
	// Restoring: metadata and objects are being fetched, and may not be complete.
	// Restored: the log below some address is only in the bucket; from the first Start
	// on, after which Started is set, that address is the local device's Begin.
	Restoring bool `json:"restoring,omitempty"`
	Restored  bool `json:"restored,omitempty"`
	Started   bool `json:"started,omitempty"`
	// Meta are the names of all metadata, which a device cannot list.
	Meta []string `json:"meta"`
	// Replaced are the objects that were replaced under a name that the bucket has.
	Replaced []string `json:"replaced,omitempty"`
}

// loadState reads the state; nil if there is none.
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

// store stores the state durably.
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

// change stores the state with a change, or changes nothing. The caller holds Device.mu.
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

// newName returns a unique name.
func newName() string { return rand.Text()[:16] }
