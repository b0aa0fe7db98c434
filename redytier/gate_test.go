package redytier

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
)

// While some regions are held, request loops to the other regions continue, and those to held
// regions take only their own share: of seven equal loops, one seventh stops per held region
// (the paper's figures 15 and 16 show 1/7, 2/7 and 4/7).
func TestHeldRegionsHoldUpNoOthers(t *testing.T) {
	for _, name := range transporttest.Names(t) {
		for _, configuration := range configurations {
			for _, held := range []int{1, 2, 4} {
				t.Run(fmt.Sprintf("%s,s=%d,b=%d,held=%d", name, configuration.ServerThreads, configuration.BatchSize, held), func(t *testing.T) {
					holdSome(t, newCluster(t, name, 1, 1<<20), configuration, held)
				})
			}
		}
	}
}

func holdSome(t *testing.T, c *cluster, configuration Configuration, held int) {
	const regions, depth, rounds = 7, 2, 200
	cache := c.create(t, Config{Capacity: regions << 16, RegionSize: 1 << 16, Configuration: configuration})
	setGate := func(g gate) {
		cache.update(func(t *table) {
			for i := range held {
				t.regions.edit(i).gate = g
			}
		})
	}
	p := newPump(t, cache, regions*depth)
	setGate(holdWrites)
	var ended [regions]int
	var again func(region int)
	again = func(region int) {
		if ended[region] >= rounds {
			return
		}
		buf := make([]byte, 64)
		p.do(true, buf, int64(region)<<16+int64(ended[region])*64, func(c device.Completion) {
			if c.Err != nil {
				t.Error(c.Err)
			}
			ended[region]++
			again(region)
		})
	}
	for region := range regions {
		for range depth {
			again(region)
		}
	}
	for behind := false; !behind; {
		behind = true
		for region := held; region < regions; region++ {
			behind = behind && ended[region] >= rounds
		}
		if !behind && !p.poll() {
			t.FailNow()
		}
	}
	for region := range held {
		if ended[region] != 0 {
			t.Errorf("%d writes to region %d, which is held", ended[region], region)
		}
	}
	if cache.table.Load().regions.at(0).gate != holdWrites {
		t.Fatal("the gate is open")
	}
	setGate(0)
	p.drain()
	for region := range regions {
		if ended[region] < rounds {
			t.Errorf("%d of %d writes to region %d", ended[region], rounds, region)
		}
	}
	p.close()
}

// Reads of a region whose writes are held return the old bytes, unless they overlap an earlier
// held request of the same session, be it a read.
func TestReadsWhileWritesAreHeld(t *testing.T) {
	for _, configuration := range configurations {
		c := newCluster(t, "mem", 1, 1<<20)
		cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: configuration})
		p, other := newPump(t, cache, 8), newPump(t, cache, 8)
		setGate := func(g gate) {
			cache.update(func(t *table) { t.regions.edit(0).gate = g })
		}
		var order []string
		write := func(p *pump, name string, addr int64) {
			p.do(true, []byte(name), addr, func(c device.Completion) {
				if c.Err != nil {
					t.Error(c.Err)
				}
				order = append(order, name)
			})
		}
		read := func(p *pump, want string, addr int64) {
			buf := make([]byte, len(want))
			p.do(false, buf, addr, func(c device.Completion) {
				if c.Err != nil || string(buf) != want {
					t.Errorf("%q at %d, %v, want %q", buf, addr, c.Err, want)
				}
				order = append(order, "read "+want)
			})
		}
		write(p, "old", 100)
		p.drain()
		setGate(holdWrites)
		write(p, "new", 100)
		read(p, "w\x00\x00", 102) // overlaps the held write
		write(p, "x", 103)        // a later write that overlaps the read
		read(p, "\x00\x00", 104)  // a later read that overlaps it
		read(p, "\x00\x00\x00", 200)
		read(other, "old", 100)
		other.drain()
		for len(order) < 3 {
			p.poll()
		}
		setGate(0)
		p.drain()
		if len(order) != 7 || slices.Index(order, "read w\x00\x00") > slices.Index(order, "read \x00\x00") {
			t.Errorf("ended: %q", order)
		}
		p.close()
		other.close()
	}
}
