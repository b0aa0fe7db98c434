package smb

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// TestStore: a store whose log, metadata and checkpoints are on a file server, alone or behind
// a volatile tier, recovers all committed data.
func TestStore(t *testing.T) {
	for name, stack := range map[string]func(last device.Device) device.Device{
		"alone": func(last device.Device) device.Device { return last },
		"behind memory": func(last device.Device) device.Device {
			return device.NewTieredWith(device.TieredOptions{Logger: quiet},
				device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 50_000}), last)
		},
	} {
		t.Run(name, func(t *testing.T) { testStore(t, stack) })
	}
}

func testStore(t *testing.T, stack func(device.Device) device.Device) {
	opts := optionsFor(t, sharedServer(t))
	const records, rounds = 5_000, 3
	open := func() *kv.Store {
		t.Helper()
		dev, err := Open(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		store, err := kv.Open(kv.Options{Device: stack(dev), Memory: 32 << 10, KeySize: 8, ValueSize: 8, Logger: quiet})
		if err != nil {
			t.Fatal(errors.Join(err, dev.Close()))
		}
		return store
	}
	var key, value [8]byte
	for round := range rounds {
		store := open()
		session := store.NewSession()
		for n := range uint64(records) {
			binary.LittleEndian.PutUint64(key[:], n)
			if round > 0 {
				got, err := session.Read(key[:], value[:0])
				if err != nil || binary.LittleEndian.Uint64(got) != n*rounds+uint64(round-1) {
					t.Fatalf("round %d: key %d has %v, %v", round, n, got, err)
				}
			}
			binary.LittleEndian.PutUint64(value[:], n*rounds+uint64(round))
			if err := session.Upsert(key[:], value[:]); err != nil {
				t.Fatal(err)
			}
		}
		if round == 1 {
			if _, err := store.Checkpoint(t.Context(), kv.CheckpointOptions{Kind: kv.Snapshot}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(store.Commit(t.Context()), session.Close(), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
