package redytier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
)

// A cache begins with the bytes of a file. When a server is lost, regions that were never
// written are filled from the file again, and others are not (A46).
func TestFile(t *testing.T) {
	forAll(t, func(t *testing.T, c *cluster, cfg Config) {
		if len(c.vms) < 2 {
			return
		}
		content := make([]byte, cfg.Capacity-50_000) // zeros follow
		rng := rand.NewChaCha8([32]byte{1})
		if _, err := rng.Read(content); err != nil {
			t.Fatal(err)
		}
		cfg.File = filepath.Join(t.TempDir(), "content")
		// The file is longer than the cache, which uses the prefix.
		if err := os.WriteFile(cfg.File, append(bytes.Clone(content), make([]byte, 100_000)...), 0o600); err != nil {
			t.Fatal(err)
		}
		want := append(bytes.Clone(content), make([]byte, 50_000)...)
		events := make(chan Event, 64)
		cfg.OnEvent, cfg.reconnect = func(e Event) { events <- e }, briefly
		cache := c.create(t, cfg)
		p := newPump(t, cache, 4)
		defer p.close()
		check := func() {
			t.Helper()
			got := make([]byte, len(want))
			p.do(false, got, 0, func(c device.Completion) {
				testrun.Bytes(got, c.Err).Want(t, want, "the cache")
			})
			p.drain()
		}
		check()

		// One region on the VM that dies is written, so its bytes are lost.
		table := cache.table.Load()
		regions := table.on(table.grants()[1])
		from, to := table.span(regions[2]).from, table.span(regions[2]).to
		p.do(true, []byte("mine"), from+10, func(c device.Completion) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		p.drain()
		copy(want[from+10:], "mine")
		check()
		c.kill(1)
		failed := false
		for !failed {
			p.do(false, make([]byte, 8), from, func(c device.Completion) { failed = c.Err != nil })
			p.drain()
		}
		lost, restored := map[bool]int64{}, int64(0)
		for all := int64(len(regions)) * cfg.RegionSize; restored < all; {
			if e := testrun.Receive(t, "the next event", events); e.Kind == Restored {
				lost[e.DataLost] += e.To - e.From
				restored += e.To - e.From
			}
		}
		if lost[true] != cfg.RegionSize {
			t.Errorf("%d bytes came back as zeros, want one region", lost[true])
		}
		clear(want[from:to])
		check()
	})
}

func TestFileCannotBeRead(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	cache, err := Create(t.Context(), c.client, Config{
		Capacity: 100_000, File: filepath.Join(t.TempDir(), "none"), Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		t.Error(cache.Delete(context.Background()))
		t.Fatal("Create succeeded")
	}
	c.nothingLeft(t)
}

// A writer that fills ends the connection of the one before it, whose writes may be under way, but not
// that of a probe.
func TestFillEndsTheOneBefore(t *testing.T) {
	for _, name := range transporttest.Names(t) {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, name, 1, 1<<20)
			cache := c.create(t, Config{Capacity: 100_000, RegionSize: 1 << 16})
			g := cache.table.Load().grants()[0]
			open := func(fills bool) *regionWriter {
				t.Helper()
				p, err := cache.openRegionWriter(t.Context(), g, fills)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			probe, first := open(false), open(true)
			fill := func(p *regionWriter) error { return p.fill(t.Context(), 0, 0, 1000, zero) }
			if err := fill(first); err != nil {
				t.Error(err)
			}
			second := open(true)
			if err := fill(first); err == nil {
				t.Error("the first writer writes beside the second")
			}
			if err := errors.Join(fill(second), fill(probe)); err != nil {
				t.Error(err)
			}
			_ = first.close() // it has failed
			if err := errors.Join(second.close(), probe.close()); err != nil {
				t.Error(err)
			}
		})
	}
}
