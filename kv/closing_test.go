package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// TestCloseUnderWay closes a store during automatic and explicit checkpoints and compactions.
// These end, leave no files behind, and lose nothing.
func TestCloseUnderWay(t *testing.T) {
	for kind := range manifest.Kinds {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			disk := device.NewMemory()
			rng := rand.New(rand.NewPCG(3, uint64(kind)))
			var want []uint64
			for range 15 {
				opts := small(disk.Reopen(), 8, 8)
				opts.indexBits, opts.Logger = 4, silent
				opts.Checkpoints = CheckpointPolicy{Every: time.Microsecond, Kind: kind}
				opts.Compaction = AutoCompaction{LogSize: 1, Every: time.Microsecond, Share: 1}
				opts.Events.BackgroundError = func(i BackgroundErrorInfo) { t.Errorf("%v", i) }
				st := open(t, opts)
				if want != nil {
					if got := contents(t, st, stageKeys); !slices.Equal(got, want) {
						t.Fatalf("%v, want %v\n%v", got, want, st.Recovery())
					}
				}
				scribble(t, st, rng, stageKeys, 300)
				want = contents(t, st, stageKeys)
				var callers sync.WaitGroup
				callers.Go(func() {
					for {
						_, err := st.Checkpoint(context.Background(), CheckpointOptions{Kind: Incremental})
						if err != nil {
							if !errors.Is(err, ErrClosed) {
								t.Error(err)
							}
							return
						}
					}
				})
				closeAll(t, st)
				callers.Wait()
				names, err := disk.Reopen().ListObjects()
				m := st.recorded()
				if needed := m.Objects(); err != nil || len(names) != len(needed) {
					t.Errorf("objects %q, want %v: %v", names, needed, err)
				}
			}
		})
	}
}
