package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/ssdtier"
)

// TestServeStopsOnFullDisk: a server that promises nothing, and is stopped on a full disk, keeps what the
// disk has, and says that it is not all. One that promises something keeps what it promised.
func TestServeStopsOnFullDisk(t *testing.T) {
	for _, promise := range []resp.Durability{resp.DurabilityNone, resp.DurabilityEverySecond} {
		t.Run(promise.String(), func(t *testing.T) {
			dir := testrun.SmallDisk(t, "6m")
			raise := func() *kv.Store {
				ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{SegmentSize: 64 << 10, Buffered: true})
				if err != nil {
					t.Fatal(err)
				}
				store, err := kv.Open(kv.Options{Device: ssd, Memory: 64 << 10, PageSize: 4 << 10, CountKeys: true})
				if err != nil {
					t.Fatal(err)
				}
				return store
			}
			store := raise()
			n, err := int64(0), error(nil)
			for ; err == nil; n++ {
				err = store.Upsert(t.Context(), fmt.Append(nil, "key", n), make([]byte, 1000))
			}
			if !errors.Is(err, device.ErrNoSpace) || n < 1000 {
				t.Fatalf("after %d keys: %v, want a full disk", n, err)
			}
			var logged bytes.Buffer
			f := &durabilityFlags{promise: promise}
			if err := f.close(store, slog.New(slog.NewTextHandler(&logged, nil))); !errors.Is(err, device.ErrNoSpace) {
				t.Errorf("the store was closed with %v", err)
			}
			store = raise()
			kept, _, _ := store.KeyCount()
			if promise == resp.DurabilityNone && (kept < n-70 || !strings.Contains(logged.String(), "which is lost")) {
				t.Errorf("%d of %d keys are there; %s", kept, n, &logged)
			}
			if promise != resp.DurabilityNone && (kept != 0 || logged.Len() > 0) { // nothing was answered
				t.Errorf("%d of %d keys are there; %s", kept, n, &logged)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
