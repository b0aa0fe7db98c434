package paper

import (
	"fmt"
	"math/bits"
	"runtime"
	"time"

	"github.com/redykv/redykv/ycsb"
)

// Scale holds the sizes and durations of all trials.
type Scale struct {
	Name string `json:"name"`
	// Numbers of records in stores: with small values, with small values that all fit into
	// local memory, with small values on caches of all sizes at once, and with large values.
	Records      int64 `json:"records"`
	LocalRecords int64 `json:"local_records"`
	TierRecords  int64 `json:"tier_records"`
	LargeRecords int64 `json:"large_records"`
	// Duration and Warmup of each run of a store, and the number of Rounds of everything.
	Duration time.Duration `json:"duration"`
	Warmup   time.Duration `json:"warmup"`
	Rounds   int           `json:"rounds"`
	// Cell is the duration of each measurement of a cache in a round. Capacity is the cache's
	// size in bytes.
	Cell     time.Duration `json:"cell"`
	Capacity int64         `json:"capacity"`
	// Threads is the number of client threads, and of server threads, of a cache that is
	// configured for throughput.
	Threads int `json:"threads"`
	// SLOs is the number of SLOs that are drawn. The next field is the time to measure each
	// configuration of their model.
	SLOs     int           `json:"slos"`
	PerPoint time.Duration `json:"per_point"`
	// Region is the size of each of the seven regions that may move. Load is the duration of
	// the load before and after a move.
	Region int64         `json:"region"`
	Load   time.Duration `json:"load"`
	// CopyRate limits the bytes copied per second and region under load, IdleCopyRate without
	// load; 0 means no limit.
	CopyRate     int64 `json:"copy_rate,omitempty"`
	IdleCopyRate int64 `json:"idle_copy_rate,omitempty"`
	// VMs is the number of VMs in the generated trace, Servers the number of servers they are
	// placed on.
	VMs     int `json:"vms"`
	Servers int `json:"servers"`
}

// Names of scales.
const (
	Quick   = "quick"   // takes minutes
	Machine = "machine" // as large as this machine can hold
	Full    = "full"    // the paper's sizes
)

// ScaleNames lists all scales.
var ScaleNames = []string{Quick, Machine, Full}

// The paper's database: the number of records, and Redy's memory for records of 8 bytes and of
// 1 KB. The paper does not give the latter; it is the size of the whole log.
const (
	paperRecords    = 250_000_000
	largeValue      = 1024
	smallValue      = 8
	smallCache      = 8   // GB
	largeCache      = 272 // GB
	largestLocal    = 8   // GB of local memory, with small values
	gigabyte        = 1 << 30
	memoryShare     = 0.9 // of the machine's memory, for one experiment
	diskShare       = 0.8 // of the free disk space
	quickRecords    = 10_000_000
	quickLarge      = 500_000
	leastRecords    = 100_000
	paperRegion     = gigabyte
	indexBytesLeast = 13 // per record, before the index is rounded up to a power of two
)

// NewScale returns the named scale for a machine with that stock.
func NewScale(name string, has Stock) (Scale, error) {
	switch name {
	case Quick:
		return Scale{
			Name: name, Records: quickRecords, LocalRecords: quickRecords, TierRecords: quickRecords, LargeRecords: quickLarge,
			Duration: 700 * time.Millisecond, Warmup: 200 * time.Millisecond, Rounds: 3,
			Cell: 180 * time.Millisecond, Capacity: 128 << 20, Threads: 1,
			SLOs: 20, PerPoint: 100 * time.Millisecond,
			Region: 32 << 20, Load: 300 * time.Millisecond, CopyRate: 128 << 20,
			VMs: 20_000, Servers: 200,
		}, nil
	case Machine, Full:
		s := Scale{
			Name: name, Records: paperRecords, LocalRecords: paperRecords, TierRecords: paperRecords, LargeRecords: paperRecords,
			Duration: 3 * time.Second, Warmup: time.Second, Rounds: 5,
			// A cache may use half of the machine's processors; its servers use the rest.
			Cell: 900 * time.Millisecond, Capacity: gigabyte, Threads: max(1, runtime.NumCPU()/2),
			SLOs: 100, PerPoint: time.Second,
			Region: paperRegion, Load: 2 * time.Second,
			VMs: 400_000, Servers: 2000,
		}
		if name == Machine {
			three := func(value int, local, cache float64) demand {
				return demandOf(value, local, Stores{Cache: []float64{cache}}.members(threeDevices))
			}
			s.Records = has.largest(three(smallValue, 1, smallCache))
			s.LocalRecords = has.largest(three(smallValue, largestLocal, smallCache))
			s.TierRecords = has.largest(demandOf(smallValue, 1, Stores{Cache: tierCaches}.members(tierDevices)))
			s.LargeRecords = has.largest(three(largeValue, 80, largeCache))
			for s.Region > 1<<20 && float64(2*sevenRegions*s.Region) > memoryShare*float64(has.Memory) {
				s.Region /= 2
			}
			for s.Capacity > 64<<20 && float64(8*s.Capacity) > memoryShare*float64(has.Memory) {
				s.Capacity /= 2
			}
		}
		return s, nil
	}
	return Scale{}, fmt.Errorf("unknown scale %q: want one of %v", name, ScaleNames)
}

// demand is what a store with values of that size takes, in the paper's GB, but for its index.
type demand struct {
	value        int
	local, cache float64 // local memory, and Redy's of all caches together
	logs, shares int     // copies of the log on SSDs and on file servers
}

// of returns the need for that many records.
func (d demand) of(records int64) need {
	index := int64(1) << bits.Len64(uint64(indexBytesLeast*records))
	log := ycsb.LogBytes(records, d.value)
	share := int64(d.shares) * log
	return need{memory: index + scaled(records, d.local+d.cache) + share, disk: int64(d.logs) * log, share: share}
}

// largest returns the greatest number of records that fit, at most the paper's.
func (has Stock) largest(d demand) int64 {
	records := int64(paperRecords)
	for records > leastRecords {
		n := d.of(records)
		if float64(n.memory) <= memoryShare*float64(has.Memory) && float64(n.disk) <= diskShare*float64(has.FreeDisk) &&
			(has.Share == 0 || float64(n.share) <= diskShare*float64(has.FreeShare)) {
			break
		}
		records -= records / 20
	}
	return records
}

// factor is the ratio of a database's records to the paper's.
func factor(records int64) float64 { return float64(records) / paperRecords }

// scaled converts gigabytes beside the paper's database into bytes beside one of records.
func scaled(records int64, gb float64) int64 { return int64(gb * gigabyte * factor(records)) }
