package kv

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
)

// TestRemovedCountersLoseNothing increments counters in some sessions while others remove them
// or change their expiry. The removed values and the remaining ones add up to the increments.
func TestRemovedCountersLoseNothing(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "wide": {8, 24}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			const keys, sessions, rounds = 20, 4, 4000
			st := open(t, Options{
				Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1],
				Memory: 32 << 10, PageSize: 1 << 10, Records: keys, QueueDepth: 8,
			})
			size := max(sizes[1], 8)
			var added, taken atomic.Uint64
			var wg sync.WaitGroup
			for i := range uint64(sessions) {
				wg.Go(func() {
					s := st.NewSession()
					defer closeAll(t, s)
					rng := rand.New(rand.NewPCG(i, 6))
					for n := range rounds {
						var took uint64
						modify := Modifier(func(u *Update) Verdict { // increment it
							if n%4 == 0 {
								runtime.Gosched() // another session removes it meanwhile
							}
							old := make([]byte, size)
							copy(old, u.Old)
							u.New = append(u.New, old...)
							binary.LittleEndian.PutUint64(u.New, binary.LittleEndian.Uint64(old)+1)
							return Put
						})
						switch {
						case n%7 == 1: // remove it
							modify = func(u *Update) Verdict {
								took = 0
								if u.Found {
									took = binary.LittleEndian.Uint64(u.Old)
								}
								return Remove
							}
						case n%11 == 2: // it expires late, or never
							modify = func(u *Update) Verdict {
								if !u.Found {
									return Keep
								}
								u.New = append(u.New, u.Old...)
								if u.Expires == 0 {
									u.Expires = 1 << 50
								} else {
									u.Expires = 0
								}
								return Put
							}
						default:
							added.Add(1)
						}
						if err := s.RMW(key8(rng.Uint64N(keys)), modify); err != nil {
							t.Error(err)
							return
						}
						taken.Add(took)
					}
				})
			}
			wg.Wait()
			left := uint64(0)
			for n := range uint64(keys) {
				if v, err := st.Read(context.Background(), key8(n), nil); err == nil {
					left += binary.LittleEndian.Uint64(v)
				}
			}
			if left+taken.Load() != added.Load() {
				t.Errorf("added %d, taken %d, left %d", added.Load(), taken.Load(), left)
			}
			closeAll(t, st)
		})
	}
}
