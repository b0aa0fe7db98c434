package kv

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/blockcache"
)

// blockCached returns a memory device behind a block cache of that capacity, below a tier.
func blockCached(t *testing.T, capacity int64) (device.Device, *blockcache.Cache) {
	t.Helper()
	c, err := blockcache.New(device.NewMemory(), blockcache.Options{Capacity: capacity})
	if err != nil {
		t.Fatal(err)
	}
	small := device.NewMemoryWith(device.MemoryOptions{Volatile: true, Capacity: 64 << 10})
	return device.NewTiered(small, c), c
}

// TestDeviceCacheCounts checks that a cache in the device is part of the store's memory and
// answers reads.
func TestDeviceCacheCounts(t *testing.T) {
	const keys, memory, capacity = 20_000, 2 << 20, 1 << 20
	dev, cache := blockCached(t, capacity)
	st := open(t, Options{
		Device: dev, KeySize: 8, ValueSize: 1000, Memory: memory, MaxMemory: 2 * memory, ReadCache: 0.25,
		PageSize: 4 << 10, Records: keys,
	})
	value := bytes.Repeat([]byte("value678"), 1000/8)
	for n := range uint64(keys) {
		if err := st.Upsert(context.Background(), key8(n), value); err != nil {
			t.Fatal(err)
		}
	}
	for pass := 0; pass < 5 || pass < 1000 && cache.Metrics().Hits == 0; pass++ {
		runtime.Gosched() // a goroutine of the cache adds the blocks
		for n := range uint64(800) {
			readBack(st.Read(context.Background(), key8(n), nil)).Want(t, value, "key %d", n)
		}
	}
	if m := cache.Metrics(); m.Hits == 0 || m.Bytes > capacity {
		t.Errorf("the cache: %+v", m)
	}
	check := func(memory int64) {
		t.Helper()
		m := st.Metrics()
		if m.Device.CacheBudget != capacity || m.Log.MemoryBudget != (memory-capacity)*3/4 || m.ReadCache.Budget != (memory-capacity)/4 {
			t.Errorf("of %d bytes:\n%v", memory, m)
		}
		if text := m.String(); !strings.Contains(text, "1MiB") || !strings.Contains(text, "device's caches") {
			t.Errorf("no word of it:\n%s", text)
		}
	}
	check(memory)
	if err := st.SetMemory(context.Background(), 2*memory); err != nil {
		t.Fatal(err)
	}
	check(2 * memory)
	if err := st.SetMemory(context.Background(), capacity); err == nil || !strings.Contains(err.Error(), "caches in the device take 1MiB") {
		t.Errorf("memory for nothing but the cache: %v", err)
	}
	check(2 * memory)
	closeAll(t, st)

	dev, _ = blockCached(t, capacity)
	if st, err := Open(Options{Device: dev, Memory: capacity}); err == nil || !strings.Contains(err.Error(), "caches in the device take 1MiB") {
		t.Errorf("%v, %v", st, err)
	}
	closeAll(t, dev)
}
