package manager

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/api"
)

// Bounds of a cache, in addition to those of [redywire.Configuration].
const (
	maxRecordSize = 1 << 30

	minRegionSize     = 4 << 10
	maxRegionSize     = 1 << 40
	defaultRegionSize = 1 << 30
	maxRegions        = 1 << 16

	// leastSmaller is the minimum size to which regions are made smaller to fit.
	leastSmaller = 1 << 20

	maxDuration = 100 * 365 * 24 * 3600 // seconds
)

// DefaultConfiguration returns the configuration of a cache without an SLO: one client
// thread, one-sided access, the maximum queue depth. It needs no server core, so that every
// VM can serve it.
func DefaultConfiguration() *managerv1.Configuration {
	return &managerv1.Configuration{ClientThreads: 1, ServerThreads: 0, BatchSize: 1, QueueDepth: redywire.MaxQueueDepth}
}

// demand is what a cache needs, with the configuration chosen for it.
type demand struct {
	capacity   uint64 // bytes, as asked
	regionSize uint64 // bytes, a power of two
	regions    uint32 // to be placed, or those of the cache
	per        uint32 // regions that config's server threads serve
	shrinks    bool   // regions may be smaller
	slo        *managerv1.Slo
	config     *managerv1.Configuration
	transport  string

	// configs are the possible configurations by network distance, before one of them is
	// chosen; distance 0 stands for all distances without their own (R25). nil: config, at
	// every distance.
	configs     map[int]*managerv1.Configuration
	duration    int64  // seconds; 0: until it is deallocated
	distance    uint32 // of the cache's VMs; 0: not known
	cloudRegion string // of its client; empty: there are none

	client *managerv1.Client // for the search of configurations; nil: not known

	source string // by whose measurements memory leaves its VMs: see rates

	chosen bool // config was found for the SLO, and not named by the client

	linger  time.Duration // of a new cache
	on      string        // of a new cache: a VM whose memory is used first; empty: any
	inOrder bool          // of a new cache: see AllocateRequest
}

// decide checks a request and returns its demand. Without a requested configuration, the
// demand has DefaultConfiguration until one is found for the SLO.
func decide(req *managerv1.AllocateRequest, transport string) (demand, error) {
	d := demand{
		capacity: req.GetCapacity(), slo: req.GetSlo(), config: req.GetConfiguration(), transport: cmp.Or(req.GetTransport(), transport),
		duration: req.GetDurationSeconds(), cloudRegion: req.GetCloudRegion(), client: req.GetClient(),
		shrinks: req.GetRegionSize() == 0 || req.GetSmallerRegions(), on: req.GetVmId(),
	}
	var err error
	if d.regionSize, d.regions, err = regionsFor(req.GetCapacity(), req.GetRegionSize()); err != nil {
		return d, err
	}
	d.per = d.regions
	if err := checkSLO(d.slo); err != nil {
		return d, err
	}
	if d.duration < 0 || d.duration > maxDuration {
		return d, fmt.Errorf("duration_seconds %d: want 0 (until deallocated) to %d", d.duration, int64(maxDuration))
	}
	if len(d.cloudRegion) > api.MaxIDLen {
		return d, fmt.Errorf("cloud_region %.40q: no such region", d.cloudRegion)
	}
	if d.config == nil {
		d.config = DefaultConfiguration()
	} else if err := checkConfiguration(d.config, d.slo.GetRecordSize()); err != nil {
		return d, err
	}
	if len(d.client.GetMachine()) > api.MaxIDLen {
		return d, fmt.Errorf("client: machine %.40q: want at most %d bytes", d.client.GetMachine(), api.MaxIDLen)
	}
	if len(d.on) > api.MaxIDLen {
		return d, fmt.Errorf("vm_id %.40q: no such VM", d.on)
	}
	if len(d.transport) > api.MaxIDLen {
		return d, fmt.Errorf("transport %.40q: no such transport", d.transport)
	}
	return d, nil
}

// sizes returns the demand for each permitted region size, the largest first.
func (d demand) sizes() []demand {
	all := []demand{d}
	for size := d.regionSize / 2; d.shrinks && size >= leastSmaller; size /= 2 {
		_, n, err := regionsFor(d.capacity, size)
		if err != nil {
			break // too many regions
		}
		d.regionSize, d.regions, d.per = size, n, n
		all = append(all, d)
	}
	return all
}

// found sets the configurations that were found for the demand's SLO; nil changes nothing.
func (d *demand) found(configs map[int]*managerv1.Configuration) {
	if len(configs) > 0 {
		d.configs, d.config, d.chosen = configs, nearest(configs), true
	}
}

// decideMore returns the demand of a Reallocate: now is the cache's, and configs were found
// for a new SLO.
func decideMore(now demand, req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration) (demand, error) {
	d := now
	d.client = cmp.Or(req.GetClient(), now.client)
	if d.regions = req.GetRegions(); d.regions < 1 || d.regions > maxRegions {
		return d, fmt.Errorf("regions %d: want 1 to %d", d.regions, maxRegions)
	}
	if req.GetConfiguration() != nil || configs != nil {
		d.per, d.distance = d.regions, 0 // the cache moves as a whole, to any distance
	}
	d.found(configs)
	return d, d.revise(req.GetSlo(), req.GetConfiguration())
}

// decideSettled returns a cache's demand after a Settle. Its config pointer differs from the
// present one's only if the configuration has changed.
func decideSettled(now demand, req *managerv1.SettleRequest) (demand, error) {
	d := now
	d.capacity = req.GetCapacity()
	var err error
	if _, d.regions, err = regionsFor(d.capacity, d.regionSize); err != nil {
		return d, err
	}
	config := req.GetConfiguration()
	if proto.Equal(config, now.config) {
		config = nil
	}
	if config != nil {
		d.per = d.regions
	}
	return d, d.revise(req.GetSlo(), config)
}

// revise replaces the SLO and the configuration, unless they are nil.
func (d *demand) revise(slo *managerv1.Slo, config *managerv1.Configuration) error {
	d.slo, d.config = cmp.Or(slo, d.slo), cmp.Or(config, d.config)
	if err := checkSLO(d.slo); err != nil {
		return err
	}
	return checkConfiguration(d.config, d.slo.GetRecordSize())
}

// errNoCapacity is the error of a capacity of 0.
var errNoCapacity = errors.New("capacity 0: want the cache's size in bytes")

// regionsFor returns the size and number of a capacity's regions. The default size is 1 GiB,
// or less if the whole cache is smaller (R12).
func regionsFor(capacity, size uint64) (uint64, uint32, error) {
	if capacity == 0 {
		return 0, 0, errNoCapacity
	}
	if size == 0 {
		size = defaultRegionSize
		if capacity < size {
			size = max(minRegionSize, uint64(1)<<bits.Len64(capacity-1))
		}
	}
	if size < minRegionSize || size > maxRegionSize || size&(size-1) != 0 {
		return 0, 0, fmt.Errorf("region_size %d: want a power of two from %d to %d", size, minRegionSize, uint64(maxRegionSize))
	}
	n := (capacity-1)/size + 1
	if n > maxRegions {
		return 0, 0, &api.CapacityError{
			What: fmt.Sprintf("a cache of %d regions, with this region_size of %v", maxRegions, units.Size(size)), Asked: capacity, Available: maxRegions * size,
		}
	}
	return size, uint32(n), nil
}

func checkSLO(slo *managerv1.Slo) error {
	// Written so that NaN is refused.
	if l := slo.GetMaxLatencyUs(); !(l >= 0 && l <= math.MaxFloat64) {
		return fmt.Errorf("slo: max_latency_us %v: want 0 (unconstrained) or more", l)
	}
	if t := slo.GetMinThroughputMops(); !(t >= 0 && t <= math.MaxFloat64) {
		return fmt.Errorf("slo: min_throughput_mops %v: want 0 (unconstrained) or more", t)
	}
	if _, ok := managerv1.Slo_Operations_name[int32(slo.GetOperations())]; !ok {
		return fmt.Errorf("slo: operations %d: want 0 for reads and writes, 1 for reads, 2 for writes", slo.GetOperations())
	}
	if slo.GetRecordSize() > maxRecordSize {
		return fmt.Errorf("slo: record_size %d: want at most %d bytes", slo.GetRecordSize(), maxRecordSize)
	}
	return nil
}

// checkConfiguration checks a configuration against table 2.
func checkConfiguration(c *managerv1.Configuration, recordSize uint32) error {
	return redywire.Configuration{
		ClientThreads: int(c.GetClientThreads()), ServerThreads: int(c.GetServerThreads()),
		BatchSize: int(c.GetBatchSize()), QueueDepth: int(c.GetQueueDepth()),
	}.Check(int(recordSize))
}
