package kv

import (
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// TestOpenContext: the opening of a store ends with its context, in each of its parts that take long, and
// the next one finds all keys.
func TestOpenContext(t *testing.T) {
	const none = CheckpointKind(255)
	for what, kind := range map[string]CheckpointKind{
		"log that fits in memory":                               none,
		"copy of the index, and of the log that fits in memory": FoldOver,
		"log":                                 none,
		"snapshots, before they are restored": Snapshot,
		"snapshots, to restore them":          Snapshot,
	} {
		t.Run(what, func(t *testing.T) {
			disk := device.NewMemory()
			opts := small(disk, 0, 0)
			st := open(t, opts)
			const keys = 1000
			for n := range uint64(keys) {
				if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			if kind != none {
				mustCheckpoint(t, st, CheckpointOptions{Kind: kind, Name: "named"})
			}
			if kind == Snapshot {
				opts.Recover = "named" // the last commit needs no snapshot
			}
			closeAll(t, st)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			why := errors.New("why")
			opts.Events.Recovering = func(i RecoveringInfo) {
				if i.What == what {
					cancel(why)
				}
			}
			opts.hashSeed = st.opts.hashSeed
			opts.Device = disk.Reopen()
			if _, err := OpenContext(ctx, opts); !errors.Is(err, why) {
				t.Fatalf("opened: %v", err)
			}
			closeAll(t, opts.Device)
			opts.Device = disk.Reopen()
			st = open(t, opts)
			if n := found(t, st, keys); n != keys {
				t.Errorf("%d keys of %d", n, keys)
			}
			closeAll(t, st)
		})
	}
}
