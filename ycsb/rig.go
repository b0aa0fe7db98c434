package ycsb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/kv"
)

// Rig is one store whose log lies on several devices at once, each of which has all of
// it: a run reads from the one that it names. What a run of another device differs in
// is the device alone, and the index and the local memory exist once, however many
// devices are compared; so a machine of 24 GB compares three of them with 250 million
// records.
//
// It belongs to one goroutine.
type Rig struct {
	Store *kv.Store

	shape    Shape
	devices  []Device
	storages []*Storage
	log      *copies
	runs     int64
}

// OpenRig makes an empty store of that shape on devices, whose files, if they have
// any, are below dir. What it starts ends with Close.
func OpenRig(ctx context.Context, devices []Device, shape Shape, dir string) (*Rig, error) {
	if err := shape.check(); err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	if len(devices) == 0 {
		return nil, errors.New("ycsb: a rig without a device")
	}
	r := &Rig{shape: shape, devices: slices.Clone(devices), log: new(copies)}
	heap := heapBytes()
	for _, name := range devices {
		s, err := OpenStorage(ctx, name, shape, filepath.Join(dir, string(name)))
		if err != nil {
			return nil, errors.Join(err, r.log.Close(), r.release())
		}
		s.heap = heap
		r.storages = append(r.storages, s)
		r.log.all = append(r.log.all, s.Device)
	}
	store, err := openStore(r.log, shape)
	if err != nil {
		return nil, errors.Join(err, r.log.Close(), r.release())
	}
	r.Store = store
	return r, nil
}

// openStore makes the store of a shape on dev, of which it is the owner then.
func openStore(dev device.Device, shape Shape) (*kv.Store, error) {
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

// Load stores the records that the rig was made for.
func (r *Rig) Load(ctx context.Context, progress Progress) error {
	progress = bench.OrQuiet(progress)
	progress.Begin("load", r.shape.Records)
	defer progress.End()
	return Load(ctx, r.Store, r.shape, loadThreads, progress)
}

// SetMemory changes the local memory to what shape.Memory says in later runs: no more
// than the rig was made with. What does not fit is on the devices only then.
func (r *Rig) SetMemory(bytes int64) error {
	if err := r.Store.SetMemory(bytes); err != nil {
		return fmt.Errorf("ycsb: %w", err)
	}
	r.shape.Memory = bytes
	return nil
}

// Shape is what the rig holds and may use.
func (r *Rig) Shape() Shape { return r.shape }

// Run is one experiment on a device of the rig, of which spec names all but the shape
// and the seed.
func (r *Rig) Run(ctx context.Context, spec Spec, progress Progress) (Result, error) {
	at := slices.Index(r.devices, spec.Device)
	if at < 0 {
		return Result{}, fmt.Errorf("ycsb: device %s is not one of the rig's, %v", spec.Device, r.devices)
	}
	spec.Shape = r.shape
	r.runs++
	spec.Seed = r.runs // no two ask for the same
	r.log.selected.Store(int32(at))
	return Run(ctx, &Target{Store: r.Store, Storage: *r.storages[at]}, spec, progress)
}

// Close closes the store and everything that was started for it.
func (r *Rig) Close() error {
	if err := errors.Join(r.Store.Close(), r.release()); err != nil {
		return fmt.Errorf("ycsb: close: %w", err)
	}
	return nil
}

// release ends what was started beside the devices.
func (r *Rig) release() error {
	var err error
	for _, s := range r.storages {
		err = errors.Join(err, s.Release())
	}
	return err
}

// Usable says whether there is a device of that name, and this machine has what it
// takes; the error says what it lacks.
func Usable(name Device) error {
	if name == SMB {
		return checkSMB()
	}
	_, err := ParseDevice(string(name))
	return err
}
