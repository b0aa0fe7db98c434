package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/restore"
	"github.com/redykv/redykv/ssdtier"
)

// shelf is the storage of a device. It outlives the device.
type shelf struct {
	t      *testing.T
	tiered bool
	memory *device.Memory // if nil, the storage is files in
	dir    string
}

var shelfKinds = []string{"memory", "ssd", "tiered"}

func newShelf(t *testing.T, kind string) *shelf {
	h := &shelf{t: t, tiered: kind == "tiered"}
	if kind == "memory" {
		h.memory = device.NewMemory()
	} else {
		h.dir = t.TempDir()
	}
	return h
}

// raise opens the device.
func (h *shelf) raise() device.Device {
	h.t.Helper()
	if h.memory != nil {
		return h.memory.Reopen()
	}
	ssd, err := ssdtier.OpenWith(h.dir, ssdtier.Options{Buffered: true, Logger: silent})
	if err != nil {
		h.t.Fatal(err)
	}
	if !h.tiered {
		return ssd
	}
	first := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 32 << 10})
	return device.NewTieredWith(device.TieredOptions{Logger: silent}, first, ssd)
}

// scar changes bytes of the log, while the device is closed.
func (h *shelf) scar(addr int64) {
	h.t.Helper()
	scar := slices.Repeat([]byte{0x5a}, 64)
	if h.memory == nil {
		f, err := os.OpenFile(filepath.Join(h.dir, "000000000000.seg"), os.O_WRONLY, 0)
		if err != nil {
			h.t.Fatal(err)
		}
		if _, err := f.WriteAt(scar, addr); err != nil {
			h.t.Error(err)
		}
		closeAll(h.t, f)
		return
	}
	disk := h.memory.Reopen()
	w, err := restore.NewWriter(disk)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(w.Add(addr, scar), w.Flush()); err != nil {
		h.t.Error(err)
	}
	closeAll(h.t, w, disk)
}

// edit changes the manifest, while the device is closed.
func (h *shelf) edit(change func(m *manifest.Manifest)) {
	h.t.Helper()
	dev := h.raise()
	defer closeAll(h.t, dev)
	m, err := manifest.Read(dev)
	if err != nil || m == nil {
		h.t.Fatal(m, err)
	}
	change(m)
	data, err := m.Encode()
	if err == nil {
		err = dev.WriteMeta(manifest.Name, data)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// spoil changes a byte of an object, while the device is closed.
func (h *shelf) spoil(name string) {
	h.t.Helper()
	dev := h.raise()
	defer closeAll(h.t, dev)
	spoil(h.t, dev, name)
}

// layers are the states of a shelf's store, oldest first. In each state all keys have the same
// value, which no other state has. The last one is the last commit.
var layers = []string{"first", "second", "third", LastCommit}

const layerKeys = 1500 // 36 KB of log, twice the memory

// layeredOptions returns the options of the store with layers.
func layeredOptions() Options {
	opts := small(nil, 8, 8)
	opts.PageSize, opts.Memory, opts.Logger = 4096, 16<<10, silent
	opts.Checkpoints.Keep = len(layers)
	return opts
}

// fill makes a store with layers. The second is a checkpoint of that kind, without a copy of
// the index if logOnly. The first has no copy.
func (h *shelf) fill(kind CheckpointKind, logOnly bool) {
	h.t.Helper()
	opts := layeredOptions()
	opts.Device = h.raise()
	st := open(h.t, opts)
	for i, name := range layers {
		s := st.NewSession()
		for n := range uint64(layerKeys) {
			if err := s.Upsert(key8(n), key8(n+uint64(i)<<32)); err != nil {
				h.t.Fatal(err)
			}
		}
		closeAll(h.t, s)
		switch i {
		case 0:
			mustCheckpoint(h.t, st, CheckpointOptions{Name: name, LogOnly: true})
		case 1:
			mustCheckpoint(h.t, st, CheckpointOptions{Name: name, Kind: kind, LogOnly: logOnly})
		case 2: // the commit uses its copy of the index
			mustCheckpoint(h.t, st, CheckpointOptions{Name: name})
		}
	}
	closeAll(h.t, st)
}

// layer returns the name of the layer that a store has, or an error if it has none completely.
func layer(st *Store) (name string, err error) {
	s := st.NewSession()
	defer func() { err = errors.Join(err, s.Close()) }()
	layer := -1
	for n := range uint64(layerKeys) {
		value, err := s.Read(key8(n), nil)
		if err != nil {
			return "", fmt.Errorf("key %d: %w", n, err)
		}
		v := binary.LittleEndian.Uint64(value)
		if uint32(v) != uint32(n) || layer >= 0 && int(v>>32) != layer {
			return "", fmt.Errorf("key %d: %#x after layer %d", n, v, layer)
		}
		layer = int(v >> 32)
	}
	return layers[layer], nil
}

// TestFailedRecoveryByNameChangesNothing names a state that cannot be recovered, for every
// possible reason. The store still opens with its newest state, and keeps all states.
func TestFailedRecoveryByNameChangesNothing(t *testing.T) {
	// addr is in the log of the first and the second layer only.
	addr := func(m *manifest.Manifest) int64 { return m.Named("first").Tail - 10_000 }
	object := func(of func(c *manifest.Checkpoint) string) func(h *shelf, m *manifest.Manifest) {
		return func(h *shelf, m *manifest.Manifest) { h.spoil(of(m.Named("second"))) }
	}
	snapshotOf := object(func(c *manifest.Checkpoint) string { return c.Snapshot })
	indexOf := object(func(c *manifest.Checkpoint) string { return c.Index.Object })
	log := func(h *shelf, m *manifest.Manifest) { h.scar(addr(m)) }
	for _, tc := range []struct {
		name    string
		kind    CheckpointKind
		logOnly bool
		change  func(o *Options)
		damage  func(h *shelf, m *manifest.Manifest)
		other   string // a state that can be recovered instead; "": none
	}{
		{"log", FoldOver, true, nil, log, "third"},
		{"log below a snapshot", Snapshot, true, nil, log, "third"},
		{"log below an increment", Incremental, true, nil, log, "third"},
		{"log and copy of the index", FoldOver, false, nil, func(h *shelf, m *manifest.Manifest) {
			log(h, m)
			indexOf(h, m)
		}, "third"},
		{"snapshot", Snapshot, false, nil, snapshotOf, "first"},
		{"increment", Incremental, false, nil, snapshotOf, "first"},
		{"end of the log in the manifest", FoldOver, true, nil, func(h *shelf, _ *manifest.Manifest) {
			h.edit(func(m *manifest.Manifest) { m.Named("second").Tail -= 8 })
		}, "first"},
		{"begin of the log in the manifest", FoldOver, true, nil, func(h *shelf, _ *manifest.Manifest) {
			h.edit(func(m *manifest.Manifest) { m.Named("second").Begin += 32 })
		}, "first"},
		{"snapshot in the manifest", Snapshot, true, nil, func(h *shelf, _ *manifest.Manifest) {
			h.edit(func(m *manifest.Manifest) { m.Named("second").Flushed += 24 })
		}, "first"},
		{"options", FoldOver, true, func(o *Options) { o.ReadCache = 0.9 }, func(*shelf, *manifest.Manifest) {}, "first"},
		{"count of keys", FoldOver, false, func(o *Options) { o.CountKeys = true }, log, "third"},
	} {
		for _, kind := range shelfKinds {
			t.Run(tc.name+"/"+kind, func(t *testing.T) {
				h := newShelf(t, kind)
				h.fill(tc.kind, tc.logOnly)
				var before *manifest.Manifest
				h.edit(func(m *manifest.Manifest) { before = m })
				tc.damage(h, before)
				h.edit(func(m *manifest.Manifest) { before = m })

				opts := layeredOptions()
				if tc.change != nil {
					tc.change(&opts)
				}
				opts.Recover = "second"
				opts.Device = h.raise()
				st, err := Open(opts)
				if err == nil {
					t.Fatalf("recovered:\n%v", st.Recovery())
				}
				t.Log(err)
				closeAll(t, opts.Device)
				var after *manifest.Manifest
				h.edit(func(m *manifest.Manifest) { after = m })
				was, e1 := before.Encode()
				is, e2 := after.Encode()
				if errors.Join(e1, e2) != nil || string(was) != string(is) {
					t.Errorf("the manifest was\n%s, is\n%s", was, is)
				}
				opts = layeredOptions()
				for _, name := range []string{"", tc.other} {
					opts.Recover, opts.Device = name, h.raise()
					st = open(t, opts)
					want := name
					if want == "" {
						want = LastCommit
					}
					if got, err := layer(st); err != nil || got != want {
						t.Errorf("opened as %q: %q, %v", name, got, err)
					}
					crash(t, st)
					closeAll(t, opts.Device)
				}
			})
		}
	}
}

// TestRecoveryByNamePassesOverDamage recovers a state when newer ones are damaged and the
// newest cannot be opened.
func TestRecoveryByNamePassesOverDamage(t *testing.T) {
	for _, kind := range shelfKinds {
		t.Run(kind, func(t *testing.T) {
			h := newShelf(t, kind)
			h.fill(Snapshot, false)
			var tail int64
			h.edit(func(m *manifest.Manifest) { tail = m.Commit.Tail })
			h.scar(tail - 100)
			opts := layeredOptions()
			opts.Device = h.raise()
			if _, err := Open(opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `"second"`) {
				t.Errorf("opened with a damaged end: %v", err)
			}
			closeAll(t, opts.Device)
			opts.Recover = "second"
			for range 2 {
				opts.Device = h.raise()
				st := open(t, opts)
				if got, err := layer(st); err != nil || got != "second" {
					t.Errorf("%q, %v", got, err)
				}
				closeAll(t, st)
				opts.Recover = ""
			}
		})
	}
}

// TestDyingInRecoveryByName fails the device at every step of a recovery by name, once or
// permanently. Afterwards the store has the newest state or the named one.
func TestDyingInRecoveryByName(t *testing.T) {
	for _, kind := range shelfKinds {
		for _, checkpoint := range []CheckpointKind{FoldOver, Snapshot} {
			for _, forever := range []bool{true, false}[:testrun.Raced(2, 1)] {
				t.Run(fmt.Sprintf("%s/%v/%v", kind, checkpoint, forever), func(t *testing.T) {
					seen := map[string]int{}
					every(t, func(k int64) bool {
						h := newShelf(t, kind)
						h.fill(checkpoint, true)
						opts := layeredOptions()
						opts.Recover = "second"
						failed := newDying(h.raise()).crashOpen(t, opts, k, forever)

						opts.Recover, opts.Device = "", h.raise()
						st := open(t, opts)
						got, err := layer(st)
						if err != nil || got != "second" && got != LastCommit {
							t.Fatalf("step %d: %q, %v", k, got, err)
						}
						seen[got]++
						if err := st.Commit(context.Background()); err != nil {
							t.Error(err)
						}
						closeAll(t, st)
						return failed
					})
					if seen["second"] == 0 || seen[LastCommit] == 0 {
						t.Errorf("states seen: %v", seen)
					}
				})
			}
		}
	}
}
