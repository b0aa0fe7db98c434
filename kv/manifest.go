package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

const (
	manifestName   = "store"
	manifestFormat = 3
)

// manifest is what a store keeps about itself beside its log: how it was made,
// and the states that it can be recovered to. It is written whole and
// atomically, as JSON inside a sealed envelope; what it does not name does not
// exist.
type manifest struct {
	KeySize   int `json:"key_size"`
	ValueSize int `json:"value_size"`
	PageSize  int `json:"page_size"`
	IndexBits int `json:"index_bits"` // of the largest index there was: see indexBits
	// HashSeed is that of the keys' hash. Hash is of hashProbe: the log's chains are
	// of use to the same hash only.
	HashSeed uint64 `json:"hash_seed"`
	Hash     uint64 `json:"hash"`

	// Sequence is the last number that was given to a commit, a checkpoint or an
	// object. A higher one is a later one.
	Sequence uint64 `json:"sequence"`
	// Commit is the last commit. There always is one.
	Commit state `json:"commit"`
	// Index is the newest copy of the index, for the commits to come.
	Index *indexCopy `json:"index,omitempty"`
	// Checkpoints are those that are kept, oldest first.
	Checkpoints []checkpoint `json:"checkpoints,omitempty"`
}

// hashProbe is hashed to tell one hash function from another.
const hashProbe = "redykv:v"

// state is a state of the store: the log from Begin to Tail, which is on the
// device unless a checkpoint's snapshots say otherwise.
type state struct {
	Sequence uint64                 `json:"sequence"`
	Begin    int64                  `json:"begin"`
	Tail     int64                  `json:"tail"`
	Index    *indexCopy             `json:"index,omitempty"` // its entries lie below Tail
	Sessions map[string]CommitPoint `json:"sessions,omitempty"`
	Count    *keyCount              `json:"count,omitempty"` // nil: nobody counted
}

// indexCopy is an object with a copy of the index. What it lacks is in the log
// from Start on, and was put there with an index of the same TagShift: so it can be
// put into the copy. Begin is where the log began when the copy was made: the copy need
// not have what is below. 0: unknown, as programs before that one left it.
type indexCopy struct {
	Object   string `json:"object"`
	Bits     int    `json:"bits"`
	TagShift int    `json:"tag_shift"`
	Start    int64  `json:"start"`
	Begin    int64  `json:"begin,omitempty"`
}

// checkpoint is a state that can be recovered by its name.
type checkpoint struct {
	state
	Name string         `json:"name"`
	Kind CheckpointKind `json:"kind"`
	Time time.Time      `json:"time"`
	// Snapshot is an object with the log from Flushed to Tail, which the device
	// need not have; "" where it has all. Of an incremental one it lacks what is in
	// the snapshot of the checkpoint with the sequence Base, and its bases.
	Snapshot string `json:"snapshot,omitempty"`
	Flushed  int64  `json:"flushed,omitempty"`
	Base     uint64 `json:"base,omitempty"`
	// Bytes of the objects that were written for it.
	Bytes int64 `json:"bytes"`
}

// sealed is the envelope of a manifest: one can tell from the outside whether
// the inside is whole.
type sealed struct {
	Format   int             `json:"format"`
	Checksum string          `json:"checksum"` // XXH64 of the manifest's bytes
	Manifest json.RawMessage `json:"manifest"`
}

func checksum(b []byte) string { return strconv.FormatUint(xxhash.Sum64(b), 16) }

// encode seals a manifest.
func (m *manifest) encode() ([]byte, error) {
	inside, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealed{manifestFormat, checksum(inside), inside})
}

// readManifest returns nil where there is no store on the device, or the device
// keeps nothing over a restart.
func readManifest(dev interface {
	ReadMeta(name string) ([]byte, error)
}) (*manifest, error) {
	data, err := dev.ReadMeta(manifestName)
	switch {
	case errors.Is(err, device.ErrNoMeta) || errors.Is(err, errors.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("kv: reading the manifest %q: %w", manifestName, err)
	}
	return parseManifest(data)
}

// parseManifest takes nothing on trust: what it returns, Open can work with.
func parseManifest(data []byte) (*manifest, error) {
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: manifest %q: %w", ErrCorrupt, manifestName, err)
	}
	if s.Format != manifestFormat {
		return nil, fmt.Errorf("%w: manifest %q has format %d, this program reads %d", ErrMismatch, manifestName, s.Format, manifestFormat)
	}
	if sum := checksum(s.Manifest); sum != s.Checksum {
		return nil, fmt.Errorf("%w: manifest %q: checksum %s, want %s", ErrCorrupt, manifestName, sum, s.Checksum)
	}
	m := new(manifest)
	err := json.Unmarshal(s.Manifest, m)
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: manifest %q: %w", ErrCorrupt, manifestName, err)
	}
	return m, nil
}

// check says what cannot be.
func (m *manifest) check() error {
	switch {
	case m.KeySize < 0 || m.ValueSize < 0 || (m.KeySize == 0) != (m.ValueSize == 0):
		return fmt.Errorf("records of %s", describe(m.KeySize, m.ValueSize))
	case m.PageSize < hlog.MinPageSize || m.PageSize > hlog.MaxPageSize || m.PageSize&(m.PageSize-1) != 0:
		return fmt.Errorf("pages of %d bytes", m.PageSize)
	case m.IndexBits < 0 || m.IndexBits > maxTableBits:
		return fmt.Errorf("index of %d bits", m.IndexBits)
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

func (m *manifest) checkCheckpoint(c *checkpoint) error {
	if err := c.check(m.Sequence); err != nil {
		return err
	}
	switch {
	case checkCheckpointName(c.Name) != nil:
		return checkCheckpointName(c.Name)
	case m.named(c.Name) != c:
		return fmt.Errorf("name given twice")
	case c.Kind != FoldOver && c.Kind != Snapshot && c.Kind != Incremental:
		return fmt.Errorf("kind %v", c.Kind)
	case c.Kind == FoldOver && (c.Snapshot != "" || c.Base != 0):
		return fmt.Errorf("fold-over with a snapshot")
	case c.Kind != FoldOver && device.CheckName(c.Snapshot) != nil:
		return device.CheckName(c.Snapshot)
	case c.Kind != FoldOver && (c.Flushed < 0 || c.Flushed > c.Tail):
		return fmt.Errorf("snapshot from %d to %d", c.Flushed, c.Tail)
	case (c.Kind == Incremental) != (c.Base != 0):
		return fmt.Errorf("%v on top of %d", c.Kind, c.Base)
	case c.Base != 0 && (c.Base >= c.Sequence || m.numbered(c.Base) == nil || m.numbered(c.Base).Snapshot == ""):
		return fmt.Errorf("its base %d is no snapshot before it", c.Base)
	}
	return nil
}

func (s *state) check(last uint64) error {
	switch {
	case s.Sequence > last:
		return fmt.Errorf("number %d, the last is %d", s.Sequence, last)
	case s.Begin < hlog.FirstAddress || s.Tail < s.Begin || s.Tail >= hlog.MaxAddress || (s.Begin|s.Tail)%8 != 0:
		return fmt.Errorf("log from %d to %d", s.Begin, s.Tail)
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
		return fmt.Errorf("index of %d for a log up to %d", s.Index.Start, s.Tail)
	}
	return s.Index.check()
}

func (c *indexCopy) check() error {
	if c.TagShift < 0 || c.Bits < c.TagShift || c.Bits > min(c.TagShift+tagBits, maxTableBits) || c.Start < hlog.FirstAddress || c.Start >= hlog.MaxAddress || c.Start%8 != 0 || c.Begin < 0 {
		return fmt.Errorf("index of %d bits from %d", c.Bits, c.Start)
	}
	return device.CheckName(c.Object)
}

// named returns the checkpoint of that name, or nil.
func (m *manifest) named(name string) *checkpoint {
	i := slices.IndexFunc(m.Checkpoints, func(c checkpoint) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &m.Checkpoints[i]
}

// newest returns the checkpoint that Open recovers to by default; nil: the last commit.
func (m *manifest) newest() *checkpoint {
	if n := len(m.Checkpoints); n > 0 && m.Checkpoints[n-1].Sequence > m.Commit.Sequence {
		return &m.Checkpoints[n-1]
	}
	return nil
}

// numbered returns the checkpoint of that number, or nil.
func (m *manifest) numbered(sequence uint64) *checkpoint {
	i := slices.IndexFunc(m.Checkpoints, func(c checkpoint) bool { return c.Sequence == sequence })
	if i < 0 {
		return nil
	}
	return &m.Checkpoints[i]
}

// chain are the checkpoints whose snapshots make up c's log, c the last.
func (m *manifest) chain(c *checkpoint) []*checkpoint {
	if c.Base == 0 {
		return []*checkpoint{c}
	}
	return append(m.chain(m.numbered(c.Base)), c)
}

// objects are the names of all objects that the manifest names.
func (m *manifest) objects() map[string]bool {
	names := make(map[string]bool)
	for _, index := range []*indexCopy{m.Index, m.Commit.Index} {
		if index != nil {
			names[index.Object] = true
		}
	}
	for i := range m.Checkpoints {
		c := &m.Checkpoints[i]
		if c.Index != nil {
			names[c.Index.Object] = true
		}
		if c.Snapshot != "" {
			names[c.Snapshot] = true
		}
	}
	return names
}

// begin is the lowest address that a state needs.
func (m *manifest) begin() int64 {
	begin := m.Commit.Begin
	for i := range m.Checkpoints {
		begin = min(begin, m.Checkpoints[i].Begin)
	}
	return begin
}

// tailBefore is the highest address up to which a state older than c needs the log
// on the device. It is not above c's.
func (m *manifest) tailBefore(c *checkpoint) int64 {
	tail := int64(0)
	if m.Commit.Sequence < c.Sequence {
		tail = m.Commit.Tail
	}
	for i := range m.Checkpoints {
		older := &m.Checkpoints[i]
		switch {
		case older.Sequence >= c.Sequence:
		case older.Snapshot == "":
			tail = max(tail, older.Tail)
		default:
			tail = max(tail, older.Flushed)
		}
	}
	return min(tail, c.Tail)
}

// deviceTail is where the device is started to recover c; nil: the last commit. What
// older states have on the device stays, even where c has it in a snapshot: until all is
// done, somebody may want one of them instead.
func (m *manifest) deviceTail(c *checkpoint) int64 {
	switch {
	case c == nil:
		return m.Commit.Tail
	case c.Snapshot == "":
		return c.Tail
	}
	return max(c.Flushed, m.tailBefore(c))
}

// keep drops all checkpoints but those that were given a name, the newest n others, and
// what these stand on.
func (m *manifest) keep(n int) {
	needed := make(map[uint64]bool)
	for i := len(m.Checkpoints) - 1; i >= 0; i-- {
		if givenName(m.Checkpoints[i].Name) {
			if n--; n < 0 {
				continue
			}
		}
		for _, c := range m.chain(&m.Checkpoints[i]) {
			needed[c.Sequence] = true
		}
	}
	m.drop(func(c *checkpoint) bool { return !needed[c.Sequence] })
}

// drop drops checkpoints.
func (m *manifest) drop(which func(c *checkpoint) bool) {
	m.Checkpoints = slices.DeleteFunc(m.Checkpoints, func(c checkpoint) bool { return which(&c) })
}

// commit takes s for the last commit, unless a later one has overtaken it. A
// checkpoint may have done away with its copy of the index meanwhile.
func (m *manifest) commit(s *state) {
	if s.Sequence <= m.Commit.Sequence {
		return
	}
	last := *s
	if last.Index != nil && !m.objects()[last.Index.Object] {
		last.Index = nil
	}
	m.Commit = last
	if m.Index != nil && m.Index.Start <= last.Begin { // see enterState
		m.Index = nil
	}
}

// match checks options against the store on the device, and takes over from it
// what they leave open.
func (m *manifest) match(o *Options) error {
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

// record changes the manifest, on the device first. After an error the device
// may have either: whatever the new one names must stay until the next change. A
// device that keeps nothing has nobody to tell.
func (st *Store) record(ctx context.Context, change func(m *manifest)) error {
	st.recording.Lock()
	defer st.recording.Unlock()
	m := st.manifest
	m.Checkpoints = slices.Clone(m.Checkpoints)
	change(&m)
	m.Sequence = max(m.Sequence, st.sequence.Load())
	if st.index.Load() != nil {
		m.IndexBits = max(m.IndexBits, st.indexBits())
	}
	data, err := m.encode()
	// A store can be opened on a disk that is full: that changes nothing.
	if err == nil && (st.uncertain || !bytes.Equal(data, st.written)) {
		err = device.Retry(ctx, func() error { return st.dev.WriteMeta(manifestName, data) })
	}
	st.volatile = errors.Is(err, errors.ErrUnsupported)
	st.uncertain = err != nil && !st.volatile
	if st.uncertain {
		return fmt.Errorf("writing the manifest %q: %w", manifestName, err)
	}
	st.manifest = m
	if !st.volatile {
		st.written = data
	}
	st.checkpoints.kept.Store(int64(len(m.Checkpoints)))
	st.checkpoints.pinned.Store(max(m.Commit.Begin-m.begin(), 0))
	return nil
}

// recorded is the manifest as it is on the device. It is not to be changed.
func (st *Store) recorded() manifest {
	st.recording.Lock()
	defer st.recording.Unlock()
	return st.manifest
}
