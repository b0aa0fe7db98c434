package kv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestOpenContext: the opening of a store ends with its context, in each of its parts that take long, and
// the next one finds all keys.
func TestOpenContext(t *testing.T) {
	defer func(before time.Duration) { openGrace = before }(openGrace)
	openGrace = testrun.Patience(testrun.Bound) // the device answers
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

// standing is a stallable device that tells of its Close.
type standing struct {
	*stallable
	closed chan struct{}
}

func (d *standing) Close() error {
	defer close(d.closed)
	return d.stallable.Close()
}

// TestOpenContextOfADeviceThatStandsStill: the opening of a store ends with its context while a read of
// the device does not. The device is claimed, and open, until the read has ended.
func TestOpenContextOfADeviceThatStandsStill(t *testing.T) {
	for _, what := range []string{"log that fits in memory", "log", "count of keys"} {
		t.Run(what, func(t *testing.T) {
			disk := device.NewMemory()
			st := open(t, small(disk, 8, 8))
			fillStallable(t, st)
			closeAll(t, st)
			dev := &standing{&stallable{Device: disk.Reopen()}, make(chan struct{})}
			objects, err := disk.ListObjects() // the copy of the index, with which the log is not read
			for _, name := range objects {
				err = errors.Join(err, disk.RemoveObject(name))
			}
			if err != nil {
				t.Fatal(err)
			}
			opts := small(dev, 8, 8)
			opts.Logger = silent
			before, ok := map[string]string{"log": "log that fits in memory", "count of keys": "log"}[what]
			opts.CountKeys = what == "count of keys"
			if ok {
				opts.Events.Recovering = func(i RecoveringInfo) {
					if i.What == before && i.Read == i.Bytes {
						dev.stall()
					}
				}
			} else {
				dev.stall()
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("why")
			ended := make(chan error, 1)
			go func() {
				_, err := OpenContext(ctx, opts)
				ended <- err
			}()
			testrun.Until(t, "a read waits", dev.waiting)
			cancel(why)
			if err := testrun.Receive(t, "the end of the opening", ended); !errors.Is(err, why) || !errors.Is(err, ErrOpening) {
				t.Errorf("opened: %v", err)
			}
			if _, err := Open(opts); !errors.Is(err, device.ErrClaimed) {
				t.Errorf("opened again: %v", err)
			}
			select {
			case <-dev.closed:
				t.Error("the device was closed during a read")
			default:
			}
			dev.resume()
			testrun.Receive(t, "the device is closed", dev.closed)
			st = open(t, small(disk.Reopen(), 8, 8))
			if n := found(t, st, stallKeys); n != stallKeys {
				t.Errorf("%d keys of %d", n, stallKeys)
			}
			closeAll(t, st)
		})
	}
}
