package manager

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

func TestDecide(t *testing.T) {
	config := func(c, s, b, q uint32) *managerv1.Configuration {
		return &managerv1.Configuration{ClientThreads: c, ServerThreads: s, BatchSize: b, QueueDepth: q}
	}
	records := func(size uint32) *managerv1.Slo { return &managerv1.Slo{RecordSize: size} }
	for _, tc := range []struct {
		name string
		req  *managerv1.AllocateRequest
		want string // part of the error; empty: accepted
	}{
		{"least", &managerv1.AllocateRequest{Capacity: 1}, ""},
		{"no capacity", &managerv1.AllocateRequest{}, "capacity 0"},
		{"all the memory there could be", &managerv1.AllocateRequest{Capacity: math.MaxUint64}, "region_size of 1GiB: 8388608TiB asked for, 64TiB available"},
		{"as many regions as possible", &managerv1.AllocateRequest{Capacity: 64 << 40}, ""},
		{"one byte more", &managerv1.AllocateRequest{Capacity: 64<<40 + 1}, "a cache of 65536 regions, with this region_size of 1GiB"},
		{"the largest regions", &managerv1.AllocateRequest{Capacity: math.MaxInt64, RegionSize: 1 << 40}, "65536TiB available"},
		{"odd regions", &managerv1.AllocateRequest{Capacity: 1, RegionSize: 5000}, "region_size 5000: want a power of two"},
		{"tiny regions", &managerv1.AllocateRequest{Capacity: 1, RegionSize: 2048}, "region_size 2048"},
		{"huge regions", &managerv1.AllocateRequest{Capacity: 1, RegionSize: 1 << 63}, "region_size 9223372036854775808"},
		{"negative duration", &managerv1.AllocateRequest{Capacity: 1, DurationSeconds: -1}, "duration_seconds -1"},
		{"negative latency", &managerv1.AllocateRequest{Capacity: 1, Slo: &managerv1.Slo{MaxLatencyUs: -1}}, "max_latency_us -1"},
		{"latency NaN", &managerv1.AllocateRequest{Capacity: 1, Slo: &managerv1.Slo{MaxLatencyUs: math.NaN()}}, "max_latency_us NaN"},
		{"infinite throughput", &managerv1.AllocateRequest{Capacity: 1, Slo: &managerv1.Slo{MinThroughputMops: math.Inf(1)}}, "min_throughput_mops +Inf"},
		{"huge records", &managerv1.AllocateRequest{Capacity: 1, Slo: records(1<<30 + 1)}, "record_size 1073741825"},
		{"a transport of great length", &managerv1.AllocateRequest{Capacity: 1, Transport: strings.Repeat("x", 1000)}, "no such transport"},

		// Table 2: R52 to R57.
		{"one-sided", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(1, 0, 1, 16)}, ""},
		{"batches", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(4, 4, 512, 16)}, ""},
		{"c = 0", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(0, 0, 1, 1)}, "client_threads 0: want 1 to 1024"},
		{"s > c", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(2, 3, 1, 1)}, "server_threads 3: want 0 to client_threads, which is 2"},
		{"b = 0", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(1, 1, 0, 1)}, "batch_size 0: want 1 to 512"},
		{"b beyond 4 KiB", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(1, 1, 513, 1)}, "batch_size 513: want 1 to 512"},
		{"b of large records", &managerv1.AllocateRequest{Capacity: 1, Slo: records(1040), Configuration: config(1, 1, 4, 1)}, ""},
		{"b beyond 4 KiB of large records", &managerv1.AllocateRequest{Capacity: 1, Slo: records(1040), Configuration: config(1, 1, 5, 1)}, "batch_size 5: want 1 to 4"},
		{"b > 1 for records beyond 4 KiB", &managerv1.AllocateRequest{Capacity: 1, Slo: records(1 << 20), Configuration: config(1, 1, 2, 1)}, "batch_size 2: want 1 to 1"},
		{"s = 0 and b > 1", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(1, 0, 2, 1)}, "one-sided access has batch_size 1"},
		{"q = 0", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(1, 0, 1, 0)}, "queue_depth 0: want 1 to 16"},
		{"q = 17", &managerv1.AllocateRequest{Capacity: 1, Configuration: config(1, 0, 1, 17)}, "queue_depth 17: want 1 to 16"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := decide(tc.req, "tcp")
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("error %v, want one with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if held := uint64(d.regions) * d.regionSize; held < tc.req.Capacity || held-tc.req.Capacity >= d.regionSize {
				t.Errorf("%d regions of %d bytes for a capacity of %d", d.regions, d.regionSize, tc.req.Capacity)
			}
			if err := checkConfiguration(d.config, d.slo.GetRecordSize()); err != nil {
				t.Errorf("the configuration decided upon: %v", err)
			}
			if d.transport != "tcp" {
				t.Errorf("transport %q", d.transport)
			}
		})
	}
}

func TestRegionSizeOfSmallCaches(t *testing.T) {
	for capacity, want := range map[uint64]uint64{
		1: 4 << 10, 4096: 4 << 10, 4097: 8 << 10, 3 << 20: 4 << 20, 1 << 30: 1 << 30, 1<<30 + 1: 1 << 30,
	} {
		size, _, err := regionsFor(capacity, 0)
		if err != nil || size != want {
			t.Errorf("capacity %d: regions of %d, %v; want %d", capacity, size, err, want)
		}
	}
}

// FuzzPlace checks the properties of placement for arbitrary demands: every region is
// placed once, no VM gets more than it has, and the ratio of cores to memory is kept (R26,
// R73), except for cores that no connection would use (R57). A growing cache (per) already
// has the first VM of the pool.
func FuzzPlace(f *testing.F) {
	f.Add(uint64(10<<20), uint64(1<<20), uint32(2), uint32(0), uint64(4<<20), uint64(7<<20), uint64(0), uint32(1), uint32(2), false)
	f.Add(uint64(10<<20), uint64(0), uint32(0), uint32(0), uint64(0), uint64(0), uint64(3<<20), uint32(0), uint32(0), true)
	f.Add(uint64(10<<20), uint64(1<<20), uint32(2), uint32(4), uint64(4<<20), uint64(7<<20), uint64(3<<20), uint32(1), uint32(2), true)
	f.Add(uint64(10<<20), uint64(1<<20), uint32(2), uint32(8), uint64(4<<20), uint64(7<<20), uint64(0), uint32(3), uint32(2), false)
	f.Fuzz(func(t *testing.T, capacity, regionSize uint64, s, per uint32, free1, free2, vmMemory uint64, cores1, cores2 uint32, launch bool) {
		req := &managerv1.AllocateRequest{Capacity: capacity, RegionSize: regionSize}
		if s > 0 {
			req.Configuration = &managerv1.Configuration{ClientThreads: s, ServerThreads: s, BatchSize: 1, QueueDepth: 1}
		}
		d, err := decide(req, "tcp")
		if err != nil {
			return
		}
		c := newState(newWriter(nil, nil, nil, nil), nil)
		server := func(id, transport string, free uint64, cores uint32) *vm {
			v := &vm{id: id, memory: free, VM: node.VM{Transport: transport, Memory: node.MaxMemory, Cores: cores, ControlURL: "http://x"}}
			c.enter(v)
			c.list(v)
			return v
		}
		all := []*vm{
			server("a", "tcp", free1%node.MaxMemory, cores1%node.MaxCores),
			server("b", "shm", node.MaxMemory, node.MaxCores),
			server("c", "tcp", free2%node.MaxMemory, cores2%node.MaxCores),
		}
		var present []*vm
		if per > 0 {
			d.per, present = per, all[:1]
		}
		from := supply{policy: plan.Policy{MaxVMs: maxVMsPerCache}, rates: &rates{}}
		if launch {
			from.offers = []plan.Offer{{Fitted: true, Memory: vmMemory, Available: -1}}
		}
		chosen, err := c.place(d, present, nil, from)
		var tooLarge *api.CapacityError
		if err != nil && !errors.As(err, &tooLarge) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		parts := chosen.parts
		var placed uint64
		memory, cores := make(map[*vm]uint64), make(map[*vm]uint64)
		for _, p := range parts {
			placed += uint64(p.regions)
			memory[p.vm] += uint64(p.regions) * d.regionSize
			cores[p.vm] += uint64(p.cores)
			if p.regions == 0 || p.cores < s && uint64(p.cores)*uint64(d.per) < uint64(s)*uint64(p.regions) {
				t.Errorf("%d regions with %d cores, want %d for %d", p.regions, p.cores, s, d.per)
			}
			if p.vm == nil && !launch {
				t.Error("a VM to be launched by nobody")
			}
			if p.vm == nil && vmMemory > 0 && uint64(p.regions)*d.regionSize > vmMemory {
				t.Errorf("a launched VM of %d regions", p.regions)
			}
		}
		for _, v := range all {
			if memory[v] > v.memory || cores[v] > uint64(v.Cores) || v.Transport != "tcp" && memory[v] > 0 {
				t.Errorf("%d bytes and %d cores on %+v", memory[v], cores[v], v)
			}
		}
		if placed != uint64(d.regions) {
			t.Errorf("%d regions placed of %d", placed, d.regions)
		}
	})
}
