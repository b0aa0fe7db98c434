package ycsb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// Target is a store opened on a named device.
type Target struct {
	Store *kv.Store // nil for a peer
	Storage

	peer *peerTarget // nil for a store of redykv
}

// Load stores the records 0 to shape.Records-1 from several threads and commits them, so that no
// writes are pending when it returns. progress may be nil.
func Load(ctx context.Context, store *kv.Store, shape Shape, threads int, progress Progress) error {
	if err := shape.check(); err != nil {
		return fmt.Errorf("ycsb: load: %w", err)
	}
	if threads < 1 || threads > MaxThreads {
		return fmt.Errorf("ycsb: load: %d threads: want 1 to %d", threads, MaxThreads)
	}
	if err := record.Load(ctx, store, shape.Records, shape.ValueSize, threads, progress); err != nil {
		return fmt.Errorf("ycsb: load: %w", err)
	}
	if err := store.Commit(ctx); err != nil {
		return fmt.Errorf("ycsb: commit after loading: %w", err)
	}
	return nil
}

// load stores all records.
func (t *Target) load(ctx context.Context, shape Shape, progress Progress) error {
	if t.peer != nil {
		return t.peer.load(ctx, shape, progress)
	}
	return Load(ctx, t.Store, shape, loadThreads, progress)
}

// churn writes that many random records, so that a store is measured while it reuses space.
func (t *Target) churn(ctx context.Context, o opening, progress Progress) error {
	if o.Churn == 0 {
		return nil
	}
	spec := Spec{Shape: o.Shape, Device: o.Device, Mix: MixWrite, Distribution: Uniform, Threads: loadThreads}
	writers, err := t.newReaders(spec)
	if err != nil {
		return err
	}
	progress = bench.OrQuiet(progress)
	for written := int64(0); written < o.Churn; {
		if _, err := writers.run(ctx, tickEvery, func(time.Duration) {}); err != nil {
			return fmt.Errorf("ycsb: writing after loading: %w", err)
		}
		total := writers.takeTally()
		if total.first != nil {
			return fmt.Errorf("ycsb: writing after loading: %w", total.first)
		}
		written += int64(total.count)
		progress.Add(int64(total.count))
	}
	return nil
}

// filesBytes returns the space that the store's files take; 0 if it has none.
func (t *Target) filesBytes() (int64, error) {
	if t.files == "" {
		return 0, nil
	}
	return machine.FilesBytes(t.files)
}

// metrics returns the store's metrics; a peer has none.
func (t *Target) metrics() kv.Metrics {
	if t.peer != nil {
		return kv.Metrics{}
	}
	return t.Store.Metrics()
}

// Storage is a named device for a store.
type Storage struct {
	Device device.Device
	// Transport and Net describe the connection to remote memory or a file server; empty
	// without one.
	Transport, Net string
	// DirectIO says that the files bypass the page cache.
	DirectIO bool

	tiers   []Device // the device of each tier
	files   string   // directory of the SSD's or a peer's files; empty if there are none
	history *history
	release func() error // stops the device's server, after Device.Close
	heap    uint64       // Go heap before the store was opened
}

// OpenStore makes a store of that shape, with records of fixed size, on dev. The store owns
// dev, unless OpenStore fails.
func OpenStore(dev device.Device, shape Shape) (*kv.Store, error) {
	opts := kv.Options{
		Device:     dev,
		Memory:     shape.Memory,
		ReadCache:  shape.ReadCache,
		PageSize:   shape.PageSize,
		KeySize:    KeySize,
		ValueSize:  shape.ValueSize,
		Records:    shape.Records,
		QueueDepth: shape.Depth,
	}
	if shape.Written {
		opts.Compaction.DeadShare = kv.DefaultCompactDead
	}
	store, err := kv.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	return store, nil
}

// Close closes the store and stops what was started for it.
func (t *Target) Close() error {
	var err error
	if t.Store != nil {
		err = t.Store.Close()
	}
	if err = errors.Join(err, t.Release()); err != nil {
		return fmt.Errorf("ycsb: close: %w", err)
	}
	return nil
}

// OpenStorage opens a named device with files in dir. It uses Cache, Net, Depth and RefillRate
// of shape. The caller closes Device, and then calls Release.
func OpenStorage(ctx context.Context, name Device, shape Shape, dir string) (*Storage, error) {
	s := &Storage{heap: heapBytes(), history: new(history), release: func() error { return nil }}
	err := s.open(ctx, name, shape, dir)
	if err != nil {
		return nil, fmt.Errorf("ycsb: device %s: %w", name, err)
	}
	return s, nil
}

func (s *Storage) open(ctx context.Context, name Device, shape Shape, dir string) error {
	switch name {
	case Memory:
		s.Device, s.tiers = device.NewMemory(), []Device{Memory}
		return nil
	case SSD:
		ssd, err := s.openSSD(dir)
		if err != nil {
			return err
		}
		s.Device, s.tiers = ssd, []Device{SSD}
		return nil
	case SMB:
		remote, err := s.openSMB(ctx)
		if err != nil {
			return err
		}
		s.Device, s.tiers = remote, []Device{SMB}
		return nil
	case Redy:
		ssd, err := s.openSSD(dir)
		if err != nil {
			return err
		}
		remote, err := s.openRedy(ctx, shape)
		if err != nil {
			return errors.Join(err, ssd.Close())
		}
		s.tiers = []Device{Redy, SSD}
		s.Device = device.NewTieredWith(device.TieredOptions{
			Names:      []string{string(Redy), string(SSD)},
			OnEvent:    s.history.add,
			RefillRate: shape.RefillRate,
		}, remote, ssd)
		return nil
	}
	return fmt.Errorf("unknown device: want one of %v", Devices)
}

// openSSD opens the files in dir. It makes dir if it does not exist.
func (s *Storage) openSSD(dir string) (device.Device, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory %s: %w", dir, err)
	}
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		return nil, err
	}
	s.DirectIO, s.files = ssd.Direct(), dir
	return ssd, nil
}

// Release stops the processes that serve the device, which must be closed.
func (s *Storage) Release() error { return s.release() }

// Happened describes losses and recoveries of the device's tiers between two times. It is
// empty if there were none.
func (s *Storage) Happened(from, to time.Time) string {
	return s.history.note(from, to, func(tier int) string {
		if tier+1 < len(s.tiers) {
			return "the " + string(s.tiers[tier+1])
		}
		return "nowhere"
	})
}
