package ycsb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// Target is a store opened on a named device, with what a report says about it.
type Target struct {
	Store *kv.Store // nil: a peer's
	Storage

	peer *peerTarget // nil: the store is one of ours
}

// load stores all records.
func (t *Target) load(ctx context.Context, shape Shape, progress Progress) error {
	if t.peer != nil {
		return t.peer.load(ctx, shape, progress)
	}
	return Load(ctx, t.Store, shape, loadThreads, progress)
}

// metrics are the store's; of a peer there are none.
func (t *Target) metrics() kv.Metrics {
	if t.peer != nil {
		return kv.Metrics{}
	}
	return t.Store.Metrics()
}

// Storage is a named device made ready for a store.
type Storage struct {
	Device device.Device
	// Transport and Net say how remote memory, or a file server, is reached; empty
	// without any.
	Transport, Net string
	// DirectIO says that the files are read past the page cache.
	DirectIO bool

	tiers   []Device // what each tier of the device is
	history *history
	release func() error // gives back what Device does not own, after its Close
	heap    uint64       // Go heap before a store was opened on it
}

// Open makes a store of that shape, of records of fixed size, on a device whose
// files, if it has any, are below dir; or one of the Peers. What it starts ends with Close.
func Open(ctx context.Context, name Device, shape Shape, dir string) (*Target, error) {
	if err := shape.check(); err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	if slices.Contains(Peers, name) {
		return openPeer(name, shape, dir)
	}
	storage, err := OpenStorage(ctx, name, shape, dir)
	if err != nil {
		return nil, err
	}
	store, err := OpenStore(storage.Device, shape)
	if err != nil {
		err = fmt.Errorf("device %s: %w", name, err)
		return nil, errors.Join(err, storage.Device.Close(), storage.Release())
	}
	return &Target{Store: store, Storage: *storage}, nil
}

// OpenStore makes a store of that shape, with records of fixed size, on dev. It owns dev,
// unless it fails.
func OpenStore(dev device.Device, shape Shape) (*kv.Store, error) {
	store, err := kv.Open(kv.Options{
		Device:     dev,
		Memory:     shape.Memory,
		ReadCache:  shape.ReadCache,
		PageSize:   shape.PageSize,
		KeySize:    KeySize,
		ValueSize:  shape.ValueSize,
		Records:    shape.Records,
		QueueDepth: shape.Depth,
	})
	if err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	return store, nil
}

// Close closes the store and everything that was started for it.
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

// OpenStorage makes a named device ready, with files below dir. Of shape it uses
// Cache, Net, Depth and RefillRate. The caller closes Device, and calls Release after that.
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

// openSSD opens the files in dir, which it makes.
func (s *Storage) openSSD(dir string) (device.Device, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory %s: %w", dir, err)
	}
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		return nil, err
	}
	s.DirectIO = ssd.Direct()
	return ssd, nil
}

// Release ends what was started beside the device, which must have been closed.
func (s *Storage) Release() error { return s.release() }

// Happened tells in words what befell the device's tiers between two moments;
// empty if nothing did.
func (s *Storage) Happened(from, to time.Time) string {
	return s.history.note(from, to, func(tier int) string {
		if tier+1 < len(s.tiers) {
			return "the " + string(s.tiers[tier+1])
		}
		return "nowhere"
	})
}
