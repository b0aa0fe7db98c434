package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

const (
	// Name is the name of the manifest among the device's metadata.
	Name   = "store"
	format = 3

	// MaxIndexBits is the binary logarithm of the largest number of buckets of an index.
	MaxIndexBits = 40
	// TagBits is how many bits of a key's hash an entry of the index holds as its tag.
	TagBits = 14
)

// ErrMismatch means that a store cannot be opened with these options or this program.
var ErrMismatch = errors.New("kv: options do not match the store")

// Manifest is the store's description of itself: its layout, and the states that it can
// be recovered to. It is written as JSON in an envelope with a checksum.
type Manifest struct {
	KeySize   int `json:"key_size"`
	ValueSize int `json:"value_size"`
	PageSize  int `json:"page_size"`
	IndexBits int `json:"index_bits"` // of the largest index that the store has had
	// HashSeed is the seed of the keys' hash. Hash is the hash of HashProbe: the chains of
	// the log's records can be followed only with the same hash.
	HashSeed uint64 `json:"hash_seed"`
	Hash     uint64 `json:"hash"`

	// Sequence is the last number given to a commit, a checkpoint or an object. Numbers
	// increase.
	Sequence uint64 `json:"sequence"`
	// Commit is the last commit. A new store has an empty one, with number 0.
	Commit State `json:"commit"`
	// Index is the newest copy of the index, for the next commits.
	Index *IndexCopy `json:"index,omitempty"`
	// Checkpoints are the checkpoints that are kept, oldest first.
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
}

// HashProbe is hashed to tell one hash function from another.
const HashProbe = "redykv:v"

// State is a state of the store: the log from Begin to Tail. The device holds all of it,
// but for what a checkpoint's snapshots hold.
type State struct {
	Sequence uint64                 `json:"sequence"`
	Begin    int64                  `json:"begin"`
	Tail     int64                  `json:"tail"`
	Index    *IndexCopy             `json:"index,omitempty"` // its entries lie below Tail
	Sessions map[string]CommitPoint `json:"sessions,omitempty"`
	Count    *KeyCount              `json:"count,omitempty"` // nil: keys were not counted
}

// CommitPoint describes the operations of a named session that are in a state: see kv.CommitPoint.
type CommitPoint struct {
	Until     uint64   `json:"until"`
	Excluding []uint64 `json:"excluding,omitempty"` // in ascending order
}

// IndexCopy is an object with a copy of the index. The records from Start on may be
// missing in it; they were inserted with an index of the same TagShift, so that they can
// be inserted into the copy as well. Begin is where the log began when the copy was made:
// records below need not be in it. A Begin of 0 is unknown: older programs wrote none.
type IndexCopy struct {
	Object   string `json:"object"`
	Bits     int    `json:"bits"`
	TagShift int    `json:"tag_shift"`
	Start    int64  `json:"start"`
	Begin    int64  `json:"begin,omitempty"`
}

// Checkpoint is a state that can be recovered by its name.
type Checkpoint struct {
	State
	Name string    `json:"name"`
	Kind Kind      `json:"kind"`
	Time time.Time `json:"time"`
	// Snapshot is an object with the log from Flushed to Tail, which the device need not
	// hold; "" if the device holds all. The snapshot of an incremental checkpoint holds
	// only what differs from the snapshot of the checkpoint with the number Base.
	Snapshot string `json:"snapshot,omitempty"`
	Flushed  int64  `json:"flushed,omitempty"`
	Base     uint64 `json:"base,omitempty"`
	// Bytes is the size of the objects that were written for the checkpoint.
	Bytes int64 `json:"bytes"`
}

// KeyCount is the state of a store's key counters.
type KeyCount struct {
	// ClassCount is the count of class 0 or, unless Classified is set, of all keys.
	ClassCount
	// Since is when the keys were counted by a scan; 0: every change was counted.
	Since int64 `json:"since,omitempty"`
	// Classified is set if keys were counted by class. Others are the other classes with keys.
	Classified bool                 `json:"classified,omitempty"`
	Others     map[uint8]ClassCount `json:"others,omitempty"`
}

// ClassCount is the state of the counter of one class of keys.
type ClassCount struct {
	// Keys is the number of keys, those that expire included.
	Keys int64 `json:"keys"`
	// Ends are pairs: a slice of time, as the difference to the one before, and how many
	// keys expire in it. Slices far ahead are merged.
	Ends []int64 `json:"ends,omitempty"`
}

// envelope is the manifest as it is written.
type envelope struct {
	Format   int             `json:"format"`
	Checksum string          `json:"checksum"` // XXH64 of the bytes of Manifest
	Manifest json.RawMessage `json:"manifest"`
}

func checksum(b []byte) string { return strconv.FormatUint(xxhash.Sum64(b), 16) }

// Encode returns the bytes to be written. It refuses what Parse would.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	inside, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{format, checksum(inside), inside})
}

// Read reads the manifest of a device. It returns nil if the device holds no store, or
// keeps no metadata at all.
func Read(dev interface {
	ReadMeta(name string) ([]byte, error)
}) (*Manifest, error) {
	data, err := dev.ReadMeta(Name)
	switch {
	case errors.Is(err, device.ErrNoMeta) || errors.Is(err, errors.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("kv: reading the manifest %q: %w", Name, err)
	}
	return Parse(data)
}

// Parse is the inverse of Encode. It checks everything that recovery relies on.
func Parse(data []byte) (*Manifest, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("%w: manifest %q: %w", device.ErrCorrupt, Name, err)
	}
	if e.Format != format {
		return nil, fmt.Errorf("%w: manifest %q has format %d, this program reads %d", ErrMismatch, Name, e.Format, format)
	}
	if sum := checksum(e.Manifest); sum != e.Checksum {
		return nil, fmt.Errorf("%w: manifest %q: checksum %s, want %s", device.ErrCorrupt, Name, sum, e.Checksum)
	}
	m := new(Manifest)
	err := json.Unmarshal(e.Manifest, m)
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: manifest %q: %w", device.ErrCorrupt, Name, err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	switch {
	case m.KeySize < 0 || m.ValueSize < 0 || (m.KeySize == 0) != (m.ValueSize == 0):
		return fmt.Errorf("impossible record size: %d+%d bytes", m.KeySize, m.ValueSize)
	case m.PageSize < hlog.MinPageSize || m.PageSize > hlog.MaxPageSize || m.PageSize&(m.PageSize-1) != 0:
		return fmt.Errorf("impossible page size %d", m.PageSize)
	case m.IndexBits < 0 || m.IndexBits > MaxIndexBits:
		return fmt.Errorf("impossible index of %d bits", m.IndexBits)
	}
	if err := m.Commit.check(m.Sequence); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if m.Index != nil {
		if err := m.Index.check(); err != nil {
			return err
		}
	}
	last := uint64(0)
	for i := range m.Checkpoints {
		c := &m.Checkpoints[i]
		if err := m.checkCheckpoint(c); err != nil {
			return fmt.Errorf("checkpoint %q: %w", c.Name, err)
		}
		if c.Sequence <= last {
			return fmt.Errorf("checkpoint %q: number %d after %d", c.Name, c.Sequence, last)
		}
		last = c.Sequence
	}
	return nil
}

func (m *Manifest) checkCheckpoint(c *Checkpoint) error {
	if err := c.check(m.Sequence); err != nil {
		return err
	}
	switch {
	case device.CheckName(c.Name) != nil:
		return device.CheckName(c.Name)
	case m.Named(c.Name) != c:
		return errors.New("another checkpoint has the same name")
	case c.Kind != FoldOver && c.Kind != Snapshot && c.Kind != Incremental:
		return fmt.Errorf("a checkpoint cannot have kind %v", c.Kind)
	case c.Kind == FoldOver && (c.Snapshot != "" || c.Base != 0):
		return errors.New("a fold-over cannot have a snapshot")
	case c.Kind != FoldOver && device.CheckName(c.Snapshot) != nil:
		return device.CheckName(c.Snapshot)
	case c.Kind != FoldOver && (c.Flushed < 0 || c.Flushed > c.Tail):
		return fmt.Errorf("impossible snapshot from %d to %d", c.Flushed, c.Tail)
	case (c.Kind == Incremental) != (c.Base != 0):
		return fmt.Errorf("kind %v does not fit base %d", c.Kind, c.Base)
	case c.Base != 0 && (c.Base >= c.Sequence || m.Numbered(c.Base) == nil || m.Numbered(c.Base).Snapshot == ""):
		return fmt.Errorf("its base %d is not an older snapshot", c.Base)
	}
	return nil
}

func (s *State) check(last uint64) error {
	switch {
	case s.Sequence > last:
		return fmt.Errorf("number %d exceeds the last one, %d", s.Sequence, last)
	case s.Begin < hlog.FirstAddress || s.Tail < s.Begin || s.Tail >= hlog.MaxAddress || (s.Begin|s.Tail)%8 != 0:
		return fmt.Errorf("impossible log from %d to %d", s.Begin, s.Tail)
	}
	if s.Count != nil {
		if err := s.Count.check(); err != nil {
			return err
		}
	}
	if s.Index == nil {
		return nil
	}
	if s.Index.Start > s.Tail {
		return fmt.Errorf("copy of the index of %d for a log up to %d", s.Index.Start, s.Tail)
	}
	return s.Index.check()
}

func (c *IndexCopy) check() error {
	if c.TagShift < 0 || c.Bits < c.TagShift || c.Bits > min(c.TagShift+TagBits, MaxIndexBits) || c.Start < hlog.FirstAddress || c.Start >= hlog.MaxAddress || c.Start%8 != 0 || c.Begin < 0 {
		return fmt.Errorf("impossible copy of an index: %d bits, tags from bit %d, log from %d to %d", c.Bits, c.TagShift, c.Begin, c.Start)
	}
	return device.CheckName(c.Object)
}

// maxSlice is the slice of the last time there is: slices are of 2^10 milliseconds.
const maxSlice = math.MaxInt64>>10 + 1

func (k *KeyCount) check() error {
	if _, twice := k.Others[0]; k.Since < 0 || twice || !k.Classified && len(k.Others) > 0 {
		return fmt.Errorf("impossible key count: since %d, of %d classes", k.Since, 1+len(k.Others))
	}
	for _, of := range k.Others {
		if err := of.check(); err != nil {
			return err
		}
	}
	return k.ClassCount.check()
}

func (k *ClassCount) check() error {
	if len(k.Ends)%2 != 0 {
		return fmt.Errorf("impossible key count: %d numbers for those that expire", len(k.Ends))
	}
	for slice, i := int64(0), 0; i < len(k.Ends); i += 2 {
		if k.Ends[i] < 1 || k.Ends[i] > maxSlice-slice {
			return fmt.Errorf("impossible key count: keys that expire %d after %d", k.Ends[i], slice)
		}
		slice += k.Ends[i]
	}
	return nil
}

// Negative reports whether the number of keys of a class is below zero, so that the count is wrong.
func (k *KeyCount) Negative() bool {
	for _, of := range k.Others {
		if of.Keys < 0 {
			return true
		}
	}
	return k.Keys < 0
}

// Match checks the sizes that a store is opened with against the manifest.
func (m *Manifest) Match(keySize, valueSize, pageSize int) error {
	switch {
	case keySize != m.KeySize || valueSize != m.ValueSize:
		return fmt.Errorf("%w: the store has records of %s, the options want %s", ErrMismatch,
			Layout(m.KeySize, m.ValueSize), Layout(keySize, valueSize))
	case pageSize != m.PageSize:
		return fmt.Errorf("%w: the store has pages of %d bytes, the options want %d", ErrMismatch, m.PageSize, pageSize)
	}
	return nil
}

// Layout describes records of these sizes.
func Layout(keySize, valueSize int) string {
	if keySize == 0 {
		return "variable length"
	}
	return fmt.Sprintf("%d+%d bytes", keySize, valueSize)
}
