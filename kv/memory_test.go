package kv

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// TestReadCacheAnswers reads more than the log holds, twice. From then on records in the cache
// need no device reads.
func TestReadCacheAnswers(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			const keys, cold = 20_000, 1000
			st := open(t, Options{
				Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1],
				Memory: 256 << 10, ReadCache: 0.5, PageSize: 4 << 10, Records: keys,
			})
			s := st.NewSession()
			for n := range uint64(keys) {
				if err := s.Upsert(key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			ops := make([]Op, cold)
			read := func(rmw bool) Metrics {
				for n := range ops {
					ops[n] = Op{Key: key8(uint64(n))}
					if rmw {
						ops[n] = Op{Kind: OpRMW, Key: key8(uint64(n)), Modify: func(u *Update) Verdict {
							if !bytes.Equal(u.Old, ops[n].Key) {
								t.Errorf("key %d: modifying %x", n, u.Old)
							}
							return Keep
						}}
					}
				}
				if err := s.Do(context.Background(), ops); err != nil {
					t.Fatal(err)
				}
				for n := range ops {
					if !rmw && !bytes.Equal(ops[n].Value, key8(uint64(n))) {
						t.Errorf("key %d: %x", n, ops[n].Value)
					}
				}
				return st.Metrics()
			}
			first := read(false)
			second := read(false)
			for n := 0; n < 20 && second.ReadsFrom.Cache-first.ReadsFrom.Cache < cold*9/10; n++ {
				first, second = second, read(false) // the cache was still being reorganized
			}
			if hits, fetched := second.ReadsFrom.Cache-first.ReadsFrom.Cache, second.Device.Reads-first.Device.Reads; hits < cold*9/10 || hits+fetched != cold {
				t.Errorf("%d of %d reads were answered by the cache, %d by the device", hits, cold, fetched)
			}
			third := read(true)
			for n := 0; n < 20 && third.Device.Reads-second.Device.Reads > cold/10; n++ {
				second, third = third, read(true) // still
			}
			if fetched, hits := third.Device.Reads-second.Device.Reads, third.ReadCache.Hits-second.ReadCache.Hits; fetched > cold/10 || hits+fetched != cold {
				t.Errorf("%d of %d read-modify-writes fetched what is in the cache, %d found it there", fetched, cold, hits)
			}
			if m := third; m.ReadCache.Budget != 128<<10 || m.Log.MemoryBudget != 128<<10 || m.ReadCache.Records < cold*9/10 || m.ReadCache.Bytes > m.ReadCache.Budget {
				t.Errorf("half of 256 KiB for the cache:\n%v", m)
			}
			closeAll(t, s, st)
		})
	}
}

func TestReadCacheShareIsChecked(t *testing.T) {
	for _, o := range []Options{
		{ReadCache: -0.1}, {ReadCache: 1}, {ReadCache: 0.99, Memory: 64 << 10, PageSize: 4 << 10},
		{ReadCache: 0.001, Memory: 64 << 10, PageSize: 4 << 10},
	} {
		o.Device = device.NewMemory()
		if st, err := Open(o); err == nil {
			t.Errorf("share %g of %d bytes: no error", o.ReadCache, o.Memory)
			closeAll(t, st)
		}
	}
}

// TestSetMemory checks that impossible sizes change nothing, and that reads return the same
// values from 64 KiB to 1 MiB.
func TestSetMemory(t *testing.T) {
	const keys = 10_000
	st := open(t, Options{
		Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Records: keys, PageSize: 4 << 10,
		Memory: 256 << 10, MaxMemory: 1 << 20, ReadCache: 0.25,
	})
	for n := range uint64(keys) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, memory := range []int64{64 << 10, 1 << 20, 128 << 10, 256 << 10} {
		if err := st.SetMemory(context.Background(), memory); err != nil {
			t.Fatal(err)
		}
		m := st.Metrics()
		if m.Log.MemoryBudget != memory*3/4 || m.ReadCache.Budget != memory/4 || m.Log.MemoryBytes > m.Log.MemoryBudget {
			t.Errorf("memory of %d:\n%v", memory, m)
		}
		for n := range uint64(keys) {
			readBack(st.Read(context.Background(), key8(n), nil)).Want(t, key8(n), "memory of %d, key %d", memory, n)
		}
	}
	for _, bad := range []int64{-1, 0, 4 << 10, 16 << 10, 1<<20 + 1} {
		before := st.Metrics()
		if err := st.SetMemory(context.Background(), bad); err == nil {
			t.Errorf("memory of %d: no error", bad)
		}
		if m := st.Metrics(); m.Log.MemoryBudget != before.Log.MemoryBudget || m.ReadCache.Budget != before.ReadCache.Budget || m.ReadCache.Records != before.ReadCache.Records {
			t.Errorf("memory of %d was refused, and changed\n%v to\n%v", bad, before, m)
		}
	}
	closeAll(t, st)
	if err := st.SetMemory(context.Background(), 256<<10); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
	if st, err := Open(Options{Device: device.NewMemory(), Memory: 2 << 20, MaxMemory: 1 << 20}); err == nil {
		t.Error("more memory than at most")
		closeAll(t, st)
	}
}
