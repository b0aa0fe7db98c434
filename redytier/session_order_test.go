package redytier

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
)

// farAndNear is a cluster of two VMs, one of them far away: requests to both end in another
// order than that of the calls.
func farAndNear(t *testing.T) *cluster {
	c := newCluster(t, "mem", 2, 1<<20)
	c.vms[0].Distance, c.vms[1].Distance = 5, 1
	return c
}

const farAndNearNet = "1:1us,100Gbit;5:1ms,100Gbit"

func TestStrictOrder(t *testing.T) {
	for _, configuration := range configurations {
		cache := farAndNear(t).create(t, Config{
			Capacity: 128 << 10, RegionSize: 16 << 10, Configuration: configuration,
			Net: farAndNearNet, StrictOrder: true,
		})
		p := newPump(t, cache, 8)
		r := rand.New(rand.NewPCG(4, 4))
		ended := 0
		for i := range 60 {
			addr := r.Int64N(cache.Capacity() - 100) // sometimes across the border
			p.do(i%2 == 0, make([]byte, 100), addr, func(c device.Completion) {
				if c.Err != nil || ended != i {
					t.Errorf("operation %d ended as number %d: %v", i, ended, c.Err)
				}
				ended++
			})
		}
		p.close()
	}
}

func TestBarrier(t *testing.T) {
	for _, configuration := range configurations {
		cache := farAndNear(t).create(t, Config{Capacity: 128 << 10, RegionSize: 16 << 10, Configuration: configuration, Net: farAndNearNet})
		p := newPump(t, cache, 8)
		p.s.Barrier() // without pending requests
		order := ""
		write := func(name string, addr int64) {
			p.do(true, []byte(name), addr, func(c device.Completion) {
				if c.Err != nil {
					t.Error(c.Err)
				}
				order += name
			})
		}
		for range 5 {
			order = ""
			write("f", 0) // far
			p.s.Barrier()
			if err := p.s.Read(make([]byte, 1), 0, 0); !errors.Is(err, device.ErrQueueFull) {
				t.Errorf("at the barrier: %v", err)
			}
			write("n", cache.Capacity()-1) // near
			p.drain()
			if order != "fn" {
				t.Errorf("order %q", order)
			}
		}
		p.close()
	}
}
