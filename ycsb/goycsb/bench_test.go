package goycsb

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
)

// BenchmarkDB measures the binding and the store for operations on YCSB's rows. go-ycsb adds
// most of a microsecond to each.
func BenchmarkDB(b *testing.B) {
	const records = 1000
	store, err := kv.Open(kv.Options{Device: device.NewMemory(), Memory: 256 << 20, Records: records})
	if err != nil {
		b.Fatal(err)
	}
	db := NewDB(store)
	ctx := db.InitThread(b.Context(), 0, 1)
	defer func() {
		db.CleanupThread(ctx)
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	}()
	row, names := make(map[string][]byte), []string(nil)
	for i := range 10 {
		names = append(names, fmt.Sprintf("field%d", i))
		row[names[i]] = make([]byte, 100)
	}
	keys := make([]string, records)
	for i := range keys {
		keys[i] = fmt.Sprintf("user%d", rand.Int64())
		if err := db.Insert(ctx, "usertable", keys[i], row); err != nil {
			b.Fatal(err)
		}
	}
	one := map[string][]byte{"field3": make([]byte, 100)}
	for _, op := range []struct {
		name string
		do   func(key string) error
	}{
		{"read", func(key string) error { _, err := db.Read(ctx, "usertable", key, names); return err }},
		{"update", func(key string) error { return db.Update(ctx, "usertable", key, one) }},
		{"insert", func(key string) error { return db.Insert(ctx, "usertable", key, row) }},
	} {
		b.Run(op.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if err := op.do(keys[rand.IntN(records)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
