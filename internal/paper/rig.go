package paper

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// loadThreads is the number of threads that load a rig's store.
const loadThreads = 2

// rig is one store whose log is on several devices at once. Every device has all of the log,
// and a run reads from one of them, so that runs differ in the device only. Index and
// local memory exist once: a machine with 24 GB compares three devices with 250 million
// records.
//
// A rig belongs to one goroutine.
type rig struct {
	store *kv.Store

	shape    ycsb.Shape
	parts    []rigPart
	storages []*ycsb.Storage
	log      *copies
}

// rigPart is one device of a rig. Several may be of one kind.
type rigPart struct {
	device ycsb.Device
	cache  int64 // Redy's memory in bytes; others have none
}

// openRig creates an empty store on devices, whose files are below dir. The caller closes the
// rig.
func openRig(ctx context.Context, parts []rigPart, shape ycsb.Shape, dir string) (*rig, error) {
	if len(parts) == 0 {
		return nil, errors.New("a store on no device")
	}
	r := &rig{shape: shape, parts: slices.Clone(parts), log: new(copies)}
	for i, part := range parts {
		of := shape
		of.Cache = part.cache
		s, err := ycsb.OpenStorage(ctx, part.device, of, filepath.Join(dir, fmt.Sprintf("%d-%s", i, part.device)))
		if err != nil {
			return nil, errors.Join(err, r.log.Close(), r.release())
		}
		r.storages = append(r.storages, s)
		r.log.add(s.Device)
	}
	store, err := ycsb.OpenStore(r.log, shape)
	if err != nil {
		return nil, errors.Join(err, r.log.Close(), r.release())
	}
	r.store = store
	return r, nil
}

// load writes all records.
func (r *rig) load(ctx context.Context, progress bench.Progress) error {
	progress = bench.OrQuiet(progress)
	progress.Begin("load", r.shape.Records)
	defer progress.End()
	return ycsb.Load(ctx, r.store, r.shape, loadThreads, progress)
}

// setMemory changes the local memory of later runs, up to the size with which the rig was
// created.
func (r *rig) setMemory(bytes int64) error {
	if err := r.store.SetMemory(context.Background(), bytes); err != nil {
		return err
	}
	r.shape.Memory = bytes
	return nil
}

// run measures one device of the rig, by its place among the parts. It sets the spec's device and
// shape.
func (r *rig) run(ctx context.Context, at int, spec ycsb.Spec, progress bench.Progress) (ycsb.Result, error) {
	spec.Device, spec.Shape = r.parts[at].device, r.shape
	spec.Cache = r.parts[at].cache
	r.log.selected.Store(int32(at))
	return ycsb.Run(ctx, &ycsb.Target{Store: r.store, Storage: *r.storages[at]}, spec, progress)
}

// close closes the store, its devices and their processes.
func (r *rig) close() error {
	if err := errors.Join(r.store.Close(), r.release()); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// release ends the processes that serve the devices.
func (r *rig) release() error {
	var err error
	for _, s := range r.storages {
		err = errors.Join(err, s.Release())
	}
	return err
}
