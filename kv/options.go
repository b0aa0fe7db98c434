package kv

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Options configure a store. The zero value with a Device is a store of records of variable
// length in 256 MiB of memory.
type Options struct {
	// Device holds the part of the log that is not in memory. The store owns it and closes it.
	// Open fails if another open store has the device, or a device that it consists of.
	Device device.Device

	// Memory limits the bytes of the log in memory, of the read cache, and of caches in the
	// device ([device.CacheMemory]). The log needs at least four pages of it. The index is not
	// included: it takes 13 to 26 bytes for each of Records. Default 256 MiB. See also
	// [Store.SetMemory].
	Memory int64

	// MaxMemory is the upper bound of Memory for SetMemory. It reserves only address space.
	// Default: Memory, with the log's share rounded up to a power of two.
	MaxMemory int64

	// ReadCache is the share of Memory, 0 to less than 1, for a cache of records read from the
	// device; the log gets the rest. The cache is worthwhile if reads are skewed and many are
	// of records that were not written lately. Default 0: no cache.
	ReadCache float64

	// KeySize and ValueSize in bytes, both positive, make every record the same size, with no
	// length fields: a record of 8+8 bytes takes 24. Both 0: variable-length records, each with
	// 8 bytes of lengths. A store must be reopened with the sizes it was made with.
	KeySize, ValueSize int

	// Records is the expected number of keys. The index begins with room for that many, and
	// doubles when it is too full. After about ten doublings it distinguishes keys less well,
	// until the store is opened again. Default 1 Mi.
	Records int64

	// FixedIndex keeps the index from growing by itself: more keys than Records make it
	// slower, and about six times as many fill it (ErrIndexFull).
	FixedIndex bool

	// CountKeys makes the store count its keys, see [Store.KeyCount]. Upserts and deletes then
	// look for the record that they replace, on the device if it is not in memory. Open scans a
	// store that was last used without CountKeys.
	CountKeys bool

	// KeyClass returns the class of a key, for a store that counts the keys of each class: see
	// [Store.KeyCountOf]. It depends on nothing but the key, and must be the same function
	// whenever the store is opened. It is called while an operation takes effect, concurrently,
	// and must not use the store. Open scans a store that was last used with CountKeys but
	// without KeyClass. Default: all keys have class 0.
	KeyClass func(key []byte) uint8

	// Inner reports whether a key is that of an inner record: one that belongs to another key, of
	// which alone the program's users know. Inner records are not counted, scans pass over them,
	// and they are guarded by the lock of the key that they belong to (see inner.go for all of it).
	// Inner depends on nothing but the key, must be the same function whenever the store is opened,
	// is called concurrently, and must not use the store. Default: there are none.
	Inner func(key []byte) bool

	// Orphans finds inner records that belong to nothing any more, so that compaction drops them. It
	// sets orphan[i] if keys[i] is that of an orphan. An orphan must remain one: no later operation
	// may need it or write its key. Orphans is called for records that may also be old
	// versions. It may read records, by batches of the session with ctx, which ends with the
	// compaction, and must neither change any nor keep the keys. If it returns an error, compaction
	// ends with that error. Orphans needs Inner. Default: no inner record is an orphan.
	Orphans func(ctx context.Context, s *Session, keys [][]byte, orphan []bool) error

	// PageSize is the unit of flushing and eviction in bytes: a power of two, at least 512,
	// that holds the largest record and 64 bytes more. It is fixed when the store is made.
	// Default for a new store: chosen from Memory, 4 KiB to 32 MiB, and no less than records of
	// a fixed size need. Values of variable length of up to 16 MiB need 32 MiB, and Memory at
	// least four times that.
	PageSize int

	// MutableFraction is the share of the log in memory that is updated in place. Default 0.9.
	MutableFraction float64

	// QueueDepth is the number of operations that a session has pending on the device.
	// Default 256.
	QueueDepth int

	// Recover is the name of the checkpoint that Open recovers, or LastCommit. Newer commits
	// and checkpoints are dropped for good, after everything that the named one needs has been
	// read; so it is read twice. If Open fails before that, nothing is dropped; after a crash
	// either nothing or all newer ones are dropped. Default: the newest of all.
	Recover string

	// Checkpoints configures how many checkpoints are kept, and automatic checkpoints.
	Checkpoints CheckpointPolicy

	// Compaction configures automatic compaction. Default: only [Store.Compact] compacts.
	Compaction AutoCompaction

	// SampleAccesses makes the store follow a part of its keys, to predict its hit shares with
	// other sizes of memory: see [Store.MissRatioCurve]. It takes at most 8 MiB, and
	// operations on the followed keys take longer. See also [Store.SetSampling].
	SampleAccesses bool

	// Eviction makes the store a cache of a limited size. Default: nothing is evicted.
	Eviction Eviction

	// Logger receives messages for an operator. Default: slog.Default().
	Logger *slog.Logger

	// Events has functions that are called for events of the store. See also [LogEvents] and
	// [Tee].
	Events EventListener

	// hash replaces keyHash in tests, so that all keys can be made to collide.
	hash func(key []byte) uint64
	// hashSeed is the seed of a new store's hash; random unless a test sets it.
	hashSeed uint64
	// deviceCache is the part of Memory for the device's caches.
	deviceCache int64
	// indexBits is the size of a new index in tests of its growth.
	indexBits int
	// stepRecords is the maximum number of records that a step of a scan examines.
	stepRecords int
	// samplingRate is the largest share of the keys that are sampled, and witnessEvery the number
	// of operations for a witness; 0: the defaults. If stillSampling is set, sessions get no new
	// views for their witnesses.
	samplingRate  float64
	witnessEvery  int
	stillSampling bool
	// now replaces the clock, in milliseconds of Unix time, in tests of expiry.
	now func() int64
}

// LastCommit is the name of the last [Store.Commit] for Options.Recover.
const LastCommit = manifest.LastCommit

// Defaults of Options.
const (
	DefaultMemory     = 256 << 20
	DefaultRecords    = 1 << 20
	DefaultQueueDepth = 256
	MaxQueueDepth     = 1 << 14
)

// ensureDefaults sets defaults and checks the other fields.
func (o *Options) ensureDefaults() error {
	if o.Device == nil {
		return fmt.Errorf("kv: Options.Device is nil")
	}
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.deviceCache = device.CacheMemory(o.Device)
	o.Records = cmp.Or(o.Records, DefaultRecords)
	o.QueueDepth = cmp.Or(o.QueueDepth, DefaultQueueDepth)
	o.stepRecords = cmp.Or(o.stepRecords, stepRecords)
	if err := o.Checkpoints.ensureDefaults(); err != nil {
		return err
	}
	o.hashSeed = cmp.Or(o.hashSeed, index.NewSeed())
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Events = Tee(o.Events) // no function is nil
	if err := o.Compaction.ensureDefaults(); err != nil {
		return err
	}
	if err := o.Eviction.check(o.Memory); err != nil {
		return err
	}
	switch {
	case o.KeySize < 0 || o.ValueSize < 0 || (o.KeySize == 0) != (o.ValueSize == 0):
		return fmt.Errorf("kv: Options.KeySize %d with ValueSize %d: want both positive, or both 0", o.KeySize, o.ValueSize)
	case o.KeyClass != nil && !o.CountKeys:
		return fmt.Errorf("kv: Options.KeyClass without CountKeys")
	case o.Orphans != nil && o.Inner == nil:
		return fmt.Errorf("kv: Options.Orphans without Inner")
	case o.KeySize > hlog.MaxPageSize || o.ValueSize > hlog.MaxPageSize:
		return fmt.Errorf("kv: Options.KeySize %d with ValueSize %d: records must fit pages of %d bytes", o.KeySize, o.ValueSize, hlog.MaxPageSize)
	case o.Records < 0 || o.Records > hlog.MaxAddress/8:
		return fmt.Errorf("kv: Options.Records %d, want 0 to %d", o.Records, int64(hlog.MaxAddress/8))
	case o.Memory > hlog.MaxAddress || o.MaxMemory > hlog.MaxAddress:
		return fmt.Errorf("kv: Options.Memory of %v and MaxMemory of %v: at most %v", units.Size(o.Memory), units.Size(o.MaxMemory), units.Size(hlog.MaxAddress))
	case o.deviceCache > 0 && o.Memory <= o.deviceCache:
		return fmt.Errorf("kv: Options.Memory of %v: caches in the device take %v of it, and nothing is left for the log", units.Size(o.Memory), units.Size(o.deviceCache))
	case o.MaxMemory != 0 && o.MaxMemory < o.Memory:
		return fmt.Errorf("kv: Options.Memory of %v exceeds MaxMemory of %v", units.Size(o.Memory), units.Size(o.MaxMemory))
	case !(o.ReadCache >= 0 && o.ReadCache < 1):
		return fmt.Errorf("kv: Options.ReadCache %g: want a share of memory, 0 to less than 1", o.ReadCache)
	case o.QueueDepth < 1 || o.QueueDepth > MaxQueueDepth:
		return fmt.Errorf("kv: Options.QueueDepth %d, want 1 to %d", o.QueueDepth, MaxQueueDepth)
	}
	return nil
}
