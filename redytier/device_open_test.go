package redytier_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ssdtier"
)

// sharedLog is a log's text, for a device that writes it and a test that reads it.
type sharedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A store is closed and opened again: it has its cache again, and reads from it what it had
// written before, without a refill. A cache of another size, or one that is not to outlive the
// store, is returned.
func TestStoreTakesCacheUp(t *testing.T) {
	const keys, size, capacity = 2000, 240, 2 << 20
	for _, name := range transporttest.Names(t) {
		redytier.ForVMs(t, name, name, func(t *testing.T, allocator redytier.VMs) {
			quiet := slog.New(slog.DiscardHandler)
			mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{Allocator: allocator, VMMemory: 8 << 20, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := mgr.Close(); err != nil {
					t.Error(err)
				}
			}()
			dir := t.TempDir()
			var log sharedLog
			open := func(capacity int64, linger time.Duration) (*kv.Store, *redytier.Device) {
				t.Helper()
				ssd, err := ssdtier.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				redy, err := redytier.Open(t.Context(), mgr, redytier.Config{
					Capacity: capacity, RegionSize: 256 << 10, Transport: name, Linger: linger, Companion: ssd,
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				store, err := kv.Open(kv.Options{
					Device: device.NewTieredWith(device.TieredOptions{Logger: quiet, RefillRate: -1}, redy, ssd),
					Memory: 128 << 10, PageSize: 8 << 10, KeySize: 8, ValueSize: size, Records: keys, Logger: quiet,
				})
				if err != nil {
					t.Fatal(err)
				}
				return store, redy
			}
			var newest [keys]uint64
			write := func(store *kv.Store, keys, version uint64) {
				t.Helper()
				s := store.NewSession()
				defer closeOf(t, s)
				var key [8]byte
				buf := make([]byte, size)
				for k := range keys {
					binary.LittleEndian.PutUint64(key[:], k)
					if err := s.Upsert(key[:], value(buf, k, version)); err != nil {
						t.Fatal(err)
					}
					newest[k] = version
				}
			}
			read := func(store *kv.Store) {
				t.Helper()
				s := store.NewSession()
				defer closeOf(t, s)
				var key [8]byte
				for k := range uint64(keys) {
					binary.LittleEndian.PutUint64(key[:], k)
					got, err := s.Read(key[:], nil)
					if err != nil {
						t.Fatalf("key %d: %v", k, err)
					}
					if version, err := versionOf(got, k); err != nil || version != newest[k] {
						t.Fatalf("key %d has version %d, %v; want %d", k, version, err, newest[k])
					}
				}
			}
			store, redy := open(capacity, time.Minute)
			write(store, keys, 1)
			write(store, keys/2, 2)
			id := redy.Cache().Identity()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			for life := range uint64(2) {
				store, redy = open(capacity, time.Minute)
				if now := redy.Cache().Identity(); now.Cache != id.Cache {
					t.Errorf("the cache is %q, was %q\n%s", now.Cache, id.Cache, log.String())
				}
				for end := time.Now().Add(testrun.Patience(time.Minute)); strings.Count(log.String(), "were checked") <= int(life); {
					read(store)
					if time.Now().After(end) {
						t.Fatalf("the cache is not checked:\n%s", log.String())
					}
				}
				before := store.Metrics().Device.Tiers
				read(store)
				now := store.Metrics().Device.Tiers
				if hits, missed := now[0].Hits-before[0].Hits, now[1].Hits-before[1].Hits; hits < 10*missed || hits < keys/2 {
					t.Errorf("life %d: Redy answers %d reads, and does not answer %d", life, hits, missed)
				}
				write(store, keys/4, 3+life)
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for _, other := range []struct {
				capacity int64
				linger   time.Duration
			}{{capacity / 2, time.Minute}, {capacity / 2, 0}} {
				store, redy = open(other.capacity, other.linger)
				if now := redy.Cache().Identity(); now.Cache == id.Cache {
					t.Error("a cache of another use is taken up")
				}
				id = redy.Cache().Identity()
				if n := cachesOf(t, mgr); n != 1 {
					t.Errorf("%d caches", n)
				}
				read(store)
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if n := cachesOf(t, mgr); n != 0 {
				t.Errorf("%d caches", n)
			}
		})
	}
}

func cachesOf(t *testing.T, mgr *manager.Embedded) int {
	t.Helper()
	r, err := mgr.Describe(t.Context(), connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		t.Fatal(fmt.Errorf("describe: %w", err))
	}
	return len(r.Msg.GetCaches())
}
