package kv

import (
	"fmt"
	"log/slog"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Options say how a store is laid out and what it may use. The zero value with
// a Device is a store of variable-length records in 256 MiB of memory.
type Options struct {
	// Device holds the log below memory. The store owns it and closes it: neither the
	// device nor one that it is made of may be given to another store meanwhile, which
	// Open refuses.
	Device device.Device

	// Memory bounds the bytes of log kept in memory, of the read cache, and of
	// caches in the device ([device.CacheMemory]). The index comes beside it: 13 to 26
	// bytes for each of Records. At least four pages for the log. Default 256 MiB. See
	// also [Store.SetMemory].
	Memory int64

	// MaxMemory bounds what SetMemory may raise Memory to: only address space is
	// set aside for it. Default: Memory, the log's share rounded up to a power of
	// two.
	MaxMemory int64

	// ReadCache is the share of Memory, 0 to less than 1, that holds records
	// which were read from the device, those that are read again and again. It
	// pays where reads are skewed and many go to records that were not written
	// lately; the log has that much less. Default 0: none.
	ReadCache float64

	// KeySize and ValueSize in bytes, both positive, make every record the same
	// size, with no length fields: 8+8 bytes take 24. Both 0: variable-length
	// records, each with 8 bytes of lengths. A store is reopened as it was made.
	KeySize, ValueSize int

	// Records is how many keys to expect. The index begins with room for that many
	// and doubles when there are too many more; after some ten doublings, until the
	// store is opened again, it tells keys apart less well. Default 1 Mi.
	Records int64

	// FixedIndex keeps the index from growing by itself: more keys than Records
	// make it slower, and some six times as many fill it (ErrIndexFull).
	FixedIndex bool

	// CountKeys has the store count its keys, see [Store.KeyCount]. Upserts and deletes
	// then look for the record that they replace, on the device where it is not in
	// memory, as a read does. A store that was left by a program without CountKeys is
	// gone through once when it is opened.
	CountKeys bool

	// PageSize is the unit in bytes of flushing and eviction: a power of two, at
	// least 512, that holds the largest record and 64 bytes more. Default: as the
	// store was made, for the first Memory decides for good; for a new one chosen from
	// Memory, 4 KiB to 32 MiB, and no less than records of a fixed size need. Who stores
	// values of up to 16 MiB, of lengths that vary, says 32 MiB, with four times that of
	// Memory at least.
	PageSize int

	// MutableFraction is the share of memory that is updated in place.
	// Default 0.9.
	MutableFraction float64

	// QueueDepth is how many cold reads a session keeps under way. Default 256.
	QueueDepth int

	// Recover is the name of the checkpoint that Open brings the store back to, or
	// LastCommit, for good: commits and checkpoints that are newer are dropped, once all
	// has been read that the one that is named needs, which is read twice therefore. If
	// Open fails before, all states are there as they were; a crash leaves either those
	// or the one that was named. Default: the newest of all.
	Recover string

	// Checkpoints says how many checkpoints are kept, and when they are made by
	// themselves.
	Checkpoints CheckpointPolicy

	// Compaction has the log compacted in the background. Default: only
	// [Store.Compact] does.
	Compaction AutoCompaction

	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger

	// Events are told what the store does beside its operations. See also
	// [LogEvents] and [Tee].
	Events EventListener

	// hash replaces keyHash in tests, so that all keys can be made to collide.
	hash func(key []byte) uint64
	// hashSeed is the seed of a new store's hash, drawn by lot unless a test says it.
	hashSeed uint64
	// deviceCache is what of Memory the device's caches take.
	deviceCache int64
	// indexBits is the size of a new index in tests of its growth.
	indexBits int
	// stepRecords is how many records a step of a scan looks at, at most.
	stepRecords int
	// now replaces the clock, in milliseconds of Unix time, in tests of expiry.
	now func() int64
}

// LastCommit is the name by which Options.Recover asks for the last [Store.Commit].
const LastCommit = manifest.LastCommit

// Defaults of Options.
const (
	DefaultMemory     = 256 << 20
	DefaultRecords    = 1 << 20
	DefaultQueueDepth = 256
	MaxQueueDepth     = 1 << 14
)

// ensureDefaults fills in what is unset and checks the rest.
func (o *Options) ensureDefaults() error {
	if o.Device == nil {
		return fmt.Errorf("kv: Options.Device is nil")
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	o.deviceCache = device.CacheMemory(o.Device)
	if o.Records == 0 {
		o.Records = DefaultRecords
	}
	if o.QueueDepth == 0 {
		o.QueueDepth = DefaultQueueDepth
	}
	if o.stepRecords == 0 {
		o.stepRecords = stepRecords
	}
	if err := o.Checkpoints.ensureDefaults(); err != nil {
		return err
	}
	if o.hashSeed == 0 {
		o.hashSeed = index.NewSeed()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Events.ensureDefaults()
	if err := o.Compaction.ensureDefaults(); err != nil {
		return err
	}
	switch {
	case o.KeySize < 0 || o.ValueSize < 0:
		return fmt.Errorf("kv: Options.KeySize %d with ValueSize %d: want both positive, or both 0", o.KeySize, o.ValueSize)
	case (o.KeySize == 0) != (o.ValueSize == 0):
		return fmt.Errorf("kv: Options.KeySize %d with ValueSize %d: give both or neither", o.KeySize, o.ValueSize)
	case o.KeySize > hlog.MaxPageSize || o.ValueSize > hlog.MaxPageSize:
		return fmt.Errorf("kv: Options.KeySize %d with ValueSize %d: records must fit pages of %d bytes", o.KeySize, o.ValueSize, hlog.MaxPageSize)
	case o.Records < 0 || o.Records > hlog.MaxAddress/8:
		return fmt.Errorf("kv: Options.Records %d, want 0 to %d", o.Records, int64(hlog.MaxAddress/8))
	case o.Memory > hlog.MaxAddress || o.MaxMemory > hlog.MaxAddress:
		return fmt.Errorf("kv: Options.Memory of %v and MaxMemory of %v: at most %v", units.Size(o.Memory), units.Size(o.MaxMemory), units.Size(hlog.MaxAddress))
	case o.deviceCache > 0 && o.Memory <= o.deviceCache:
		return fmt.Errorf("kv: Options.Memory of %v, of which caches in the device take %v", units.Size(o.Memory), units.Size(o.deviceCache))
	case o.MaxMemory != 0 && o.MaxMemory < o.Memory:
		return fmt.Errorf("kv: Options.Memory of %v, and MaxMemory only %v", units.Size(o.Memory), units.Size(o.MaxMemory))
	case !(o.ReadCache >= 0 && o.ReadCache < 1):
		return fmt.Errorf("kv: Options.ReadCache %g, want 0 to less than 1, the share of memory", o.ReadCache)
	case o.QueueDepth < 1 || o.QueueDepth > MaxQueueDepth:
		return fmt.Errorf("kv: Options.QueueDepth %d, want 1 to %d", o.QueueDepth, MaxQueueDepth)
	}
	return nil
}
