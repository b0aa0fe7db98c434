package kv

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
)

// hookedDevice calls hook before the first write to an object.
type hookedDevice struct {
	*device.Memory
	once sync.Once
	hook func()
}

func (d *hookedDevice) CreateObject(name string) (device.ObjectWriter, error) {
	w, err := d.Memory.CreateObject(name)
	return &hookedWriter{w, d}, err
}

type hookedWriter struct {
	device.ObjectWriter
	d *hookedDevice
}

func (w *hookedWriter) Write(p []byte) (int, error) {
	w.d.once.Do(w.d.hook)
	return w.ObjectWriter.Write(p)
}

// TestSnapshotIsOfOneMoment changes records in all ways while half of a snapshot is written.
// The snapshot has them as they were when it began; afterwards they are mutable again.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "wide": {8, 1000}, "variable": {}} {
		for _, kind := range []CheckpointKind{Snapshot, Incremental} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) {
				value := func(n uint64) []byte {
					if sizes[0] == 0 {
						return bytes.Repeat(key8(n), 100)
					}
					return append(key8(n), make([]byte, sizes[1]-8)...)
				}
				// The first write happens when a chunk of 1 MiB is full. The changed records are
				// above it.
				keys := uint64(3 << 20 / (16 + len(value(0))))
				disk := &hookedDevice{Memory: device.NewMemory(), hook: func() {}}
				opts := Options{
					Device: disk, KeySize: sizes[0], ValueSize: sizes[1],
					Memory: 16 << 20, PageSize: 1 << 20, Records: int64(keys), MutableFraction: 1,
				}
				st := open(t, opts)
				s := st.NewSession()
				fill := func(from uint64) {
					for n := range keys {
						if err := s.Upsert(key8(n), value(from+n)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if kind == Incremental { // the same records change again
					fill(1)
					mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot, LogOnly: true})
				}
				fill(0)
				changed := []uint64{keys - 1, keys - 2, keys - 3, keys - 4}
				change := func() {
					ops := []Op{
						{Kind: OpUpsert, Key: key8(changed[0]), Value: value(1)},
						{Kind: OpDelete, Key: key8(changed[1])},
						{Kind: OpRMW, Key: key8(changed[2]), Modify: modifier(func(dst, _ []byte, _ bool) []byte {
							return append(dst, value(2)...)
						})},
						{Kind: OpRMW, Key: key8(changed[3]), InPlace: func(old []byte) ([]byte, bool) {
							clear(old)
							return old, true
						}, Modify: modifier(func(dst, _ []byte, _ bool) []byte { return append(dst, value(0)...) })},
					}
					if err := s.Do(context.Background(), ops); err != nil {
						t.Error(err)
					}
				}
				hooked := false
				disk.once, disk.hook = sync.Once{}, func() { hooked = true; change() }
				mustCheckpoint(t, st, CheckpointOptions{Kind: kind, LogOnly: true})
				if !hooked {
					t.Fatal("nothing was changed meanwhile")
				}
				tail := st.log.Tail()
				for range 2 {
					change()
				}
				if grown := st.log.Tail() - tail; grown > int64(len(changed)*(32+len(value(0)))) {
					t.Errorf("the log has grown by %d bytes: records are not updated in place any more", grown)
				}
				closeAll(t, s)
				crash(t, st)
				disk.once, disk.hook = sync.Once{}, func() {}
				disk.Reopen()
				st = open(t, opts)
				for _, n := range changed {
					readBack(st.Read(context.Background(), key8(n), nil)).Want(t, value(n), "key %d", n)
				}
				closeAll(t, st)
			})
		}
	}
}
