package stranded

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Cluster describes identical servers in racks, with one switch per rack. Racks form pods; a
// path between racks of a pod passes three switches, between pods five.
type Cluster struct {
	Servers  int
	Cores    int
	MemoryGB float64
	Rack     int // servers per rack
	Pod      int // racks per pod
}

// DefaultCluster has that many servers, with 40 cores and 256 GB each.
func DefaultCluster(servers int) Cluster {
	return Cluster{Servers: servers, Cores: 40, MemoryGB: 256, Rack: 20, Pod: 5}
}

// LeastStrandedGB is the least unallocated memory of a server that counts as stranded (figure
// 2).
const LeastStrandedGB = 1

// sampleEvery is the sampling interval in seconds.
const sampleEvery = 300

// Result is the outcome of a simulation.
type Result struct {
	Placed, Refused int     // numbers of VMs; no server had room for a refused one
	Cores           float64 // average share of allocated cores
	// Shares of the cluster's memory, by sample.
	Unallocated, Stranded []float64
	// PeakToTrough is the daily peak-to-trough ratio of unallocated memory, averaged over all
	// whole days; 0 if there is none.
	PeakToTrough float64
	// Events are the durations, in seconds, for which servers had stranded memory. Only events
	// that began after the warm-up and ended within the trace count.
	Events []float64
	// Reach is, by server, the stranded memory in GB of all servers at most 1, 3 and 5
	// switches away, itself included, averaged over the samples.
	Reach [][3]float64
}

// Simulate places a trace's VMs on a cluster. The first part of the trace, a share of warm,
// fills the cluster and is not sampled.
func Simulate(vms []VM, cluster Cluster, warm float64) (*Result, error) {
	if cluster.Servers < 1 || cluster.Cores < 1 || !(cluster.MemoryGB > 0) || cluster.Rack < 1 || cluster.Pod < 1 || !(warm >= 0 && warm < 1) {
		return nil, fmt.Errorf("stranded: cluster %+v, %g of it warm-up: want servers, cores, memory, racks and pods, and less than all", cluster, warm)
	}
	if len(vms) == 0 {
		return nil, errors.New("stranded: no VMs")
	}
	s := newSimulation(vms, cluster)
	s.from = s.changes[0].at + warm*(s.last-s.changes[0].at)
	s.run()
	if len(s.result.Unallocated) == 0 {
		return nil, fmt.Errorf("stranded: the trace is shorter than %d s behind its warm-up", sampleEvery)
	}
	return s.finish(), nil
}

// change is the start or the end of a VM.
type change struct {
	at    float64
	vm    int
	begin bool
}

type server struct {
	cores    int
	memory   float64
	stranded bool
	since    float64 // when the server's memory became stranded
}

type simulation struct {
	cluster Cluster
	vms     []VM
	changes []change
	last    float64 // time of the last creation; later the cluster only empties
	from    float64 // time of the first sample

	servers []server
	places  []int   // server of each VM, or -1
	byCores [][]int // servers by number of free cores

	next   float64 // time of the next sample
	result Result
	used   float64 // sum of the share of allocated cores over all samples
	days   map[int][2]float64
}

func newSimulation(vms []VM, cluster Cluster) *simulation {
	s := &simulation{
		cluster: cluster, vms: vms, servers: make([]server, cluster.Servers), places: make([]int, len(vms)),
		byCores: make([][]int, cluster.Cores+1), days: make(map[int][2]float64),
	}
	for i := range s.servers {
		s.servers[i] = server{cores: cluster.Cores, memory: cluster.MemoryGB}
		s.byCores[cluster.Cores] = append(s.byCores[cluster.Cores], i)
	}
	s.result.Reach = make([][3]float64, cluster.Servers)
	for i, vm := range vms {
		s.places[i] = -1
		s.changes = append(s.changes, change{vm.Created, i, true}, change{vm.Deleted, i, false})
		s.last = max(s.last, vm.Created)
	}
	slices.SortStableFunc(s.changes, func(a, b change) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		// At one time ends come before starts, to make room, but a VM's start comes before its
		// own end.
		if a.begin != b.begin && a.vm != b.vm {
			if b.begin {
				return -1
			}
			return 1
		}
		return 0
	})
	return s
}

func (s *simulation) run() {
	s.next = s.from
	for _, c := range s.changes {
		for s.next <= c.at && s.next <= s.last {
			s.sample()
			s.next += sampleEvery
		}
		if c.at > s.last {
			return
		}
		if c.begin {
			s.place(c)
		} else if at := s.places[c.vm]; at >= 0 {
			s.give(at, -s.vms[c.vm].Cores, -s.vms[c.vm].MemoryGB, c.at)
		}
	}
}

// place puts a VM on the server with the fewest free cores that has room for it.
func (s *simulation) place(c change) {
	vm := &s.vms[c.vm]
	for free := vm.Cores; free <= s.cluster.Cores; free++ {
		for _, i := range s.byCores[free] {
			if s.servers[i].memory >= vm.MemoryGB {
				s.places[c.vm] = i
				s.result.Placed++
				s.give(i, vm.Cores, vm.MemoryGB, c.at)
				return
			}
		}
	}
	s.result.Refused++
}

// give allocates cores and memory of a server, or frees them if negative.
func (s *simulation) give(i, cores int, memory, at float64) {
	sv := &s.servers[i]
	old := s.byCores[sv.cores]
	s.byCores[sv.cores] = slices.Delete(old, slices.Index(old, i), slices.Index(old, i)+1)
	sv.cores -= cores
	sv.memory -= memory
	s.byCores[sv.cores] = append(s.byCores[sv.cores], i)
	switch {
	case sv.cores == 0 && sv.memory >= LeastStrandedGB && !sv.stranded:
		sv.stranded, sv.since = true, at
	case sv.cores > 0 && sv.stranded:
		sv.stranded = false
		if sv.since >= s.from {
			s.result.Events = append(s.result.Events, at-sv.since)
		}
	}
}

// sample records the state of the cluster.
func (s *simulation) sample() {
	c := s.cluster
	unallocated, stranded, cores := 0.0, 0.0, 0
	racks := make([]float64, (c.Servers-1)/c.Rack+1)
	pods := make([]float64, (len(racks)-1)/c.Pod+1)
	for i := range s.servers {
		sv := &s.servers[i]
		unallocated += sv.memory
		cores += c.Cores - sv.cores
		if sv.stranded {
			stranded += sv.memory
			racks[i/c.Rack] += sv.memory
			pods[i/c.Rack/c.Pod] += sv.memory
		}
	}
	for i := range s.servers {
		r := &s.result.Reach[i]
		r[0] += racks[i/c.Rack]
		r[1] += pods[i/c.Rack/c.Pod]
		r[2] += stranded
	}
	all := float64(c.Servers) * c.MemoryGB
	s.result.Unallocated = append(s.result.Unallocated, unallocated/all)
	s.result.Stranded = append(s.result.Stranded, stranded/all)
	s.used += float64(cores) / float64(c.Servers*c.Cores)
	d := int((s.next - s.from) / day)
	seen, ok := s.days[d]
	if !ok {
		seen = [2]float64{math.Inf(1), 0}
	}
	s.days[d] = [2]float64{min(seen[0], unallocated), max(seen[1], unallocated)}
}

func (s *simulation) finish() *Result {
	r, n := &s.result, float64(len(s.result.Unallocated))
	r.Cores = s.used / n
	for i := range r.Reach {
		for j := range r.Reach[i] {
			r.Reach[i][j] /= n
		}
	}
	whole := 0
	for d, seen := range s.days {
		if float64(d+1)*day <= s.last-s.from && seen[0] > 0 {
			r.PeakToTrough += seen[1] / seen[0]
			whole++
		}
	}
	if whole > 0 {
		r.PeakToTrough /= float64(whole)
	}
	return r
}
