package paper

import (
	"fmt"
	"math/bits"
	"runtime"
	"time"

	"github.com/redykv/redykv/ycsb"
)

// Scale is how large and how long everything is.
type Scale struct {
	Name string `json:"name"`
	// Records of stores with small values, with small ones that local memory has room
	// for all of, and with large ones.
	Records      int64 `json:"records"`
	LocalRecords int64 `json:"local_records"`
	LargeRecords int64 `json:"large_records"`
	// Duration and Warmup of each run of a store; Rounds of everything.
	Duration time.Duration `json:"duration"`
	Warmup   time.Duration `json:"warmup"`
	Rounds   int           `json:"rounds"`
	// Cell is the time of each measurement of a cache in a round; Capacity is that
	// cache's size in bytes.
	Cell     time.Duration `json:"cell"`
	Capacity int64         `json:"capacity"`
	// Threads is how many client threads a cache has that is made for throughput, and
	// how many server threads.
	Threads int `json:"threads"`
	// SLOs that are drawn, and the time of each configuration of the model that they
	// are found in.
	SLOs     int           `json:"slos"`
	PerPoint time.Duration `json:"per_point"`
	// Region is the size of each of the seven that move, Load how long they are used
	// before and after.
	Region int64         `json:"region"`
	Load   time.Duration `json:"load"`
	// CopyRate bounds how many bytes a second of each region are copied while it is used,
	// IdleCopyRate while it is not; 0: nothing does.
	CopyRate     int64 `json:"copy_rate,omitempty"`
	IdleCopyRate int64 `json:"idle_copy_rate,omitempty"`
	// VMs of the generated trace, and Servers that they are placed on.
	VMs     int `json:"vms"`
	Servers int `json:"servers"`
}

// Names of scales.
const (
	Quick   = "quick"   // minutes
	Machine = "machine" // what this machine holds
	Full    = "full"    // the paper's sizes
)

// ScaleNames lists all of them.
var ScaleNames = []string{Quick, Machine, Full}

// The paper's database: so many records; Redy's memory for those of 8 bytes and of
// 1 KB, which is not told for the latter: what holds all of the log.
const (
	paperRecords    = 250_000_000
	largeValue      = 1024
	smallValue      = 8
	smallCache      = 8   // GB
	largeCache      = 272 // GB
	largestLocal    = 8   // GB of local memory, with small values
	gigabyte        = 1 << 30
	memoryShare     = 0.9 // of the machine's, for the whole of an experiment
	diskShare       = 0.8 // of what is free
	logsOnDisk      = 2   // Redy's SSD and the SSD
	quickRecords    = 10_000_000
	quickLarge      = 500_000
	leastRecords    = 100_000
	paperRegion     = gigabyte
	indexBytesLeast = 13 // of a record, before the index is rounded up to a power of two
)

// NewScale is the scale of that name, on a machine that has so much.
func NewScale(name string, has Stock) (Scale, error) {
	switch name {
	case Quick:
		return Scale{
			Name: name, Records: quickRecords, LocalRecords: quickRecords, LargeRecords: quickLarge,
			Duration: 700 * time.Millisecond, Warmup: 200 * time.Millisecond, Rounds: 3,
			Cell: 180 * time.Millisecond, Capacity: 128 << 20, Threads: 1,
			SLOs: 20, PerPoint: 100 * time.Millisecond,
			Region: 32 << 20, Load: 300 * time.Millisecond, CopyRate: 128 << 20,
			VMs: 20_000, Servers: 200,
		}, nil
	case Machine, Full:
		s := Scale{
			Name: name, Records: paperRecords, LocalRecords: paperRecords, LargeRecords: paperRecords,
			Duration: 3 * time.Second, Warmup: time.Second, Rounds: 5,
			// A cache may use half of a machine's processors, and its servers the rest.
			Cell: 900 * time.Millisecond, Capacity: gigabyte, Threads: max(1, runtime.NumCPU()/2),
			SLOs: 100, PerPoint: time.Second,
			Region: paperRegion, Load: 2 * time.Second,
			VMs: 400_000, Servers: 2000,
		}
		if name == Machine {
			s.Records = largest(smallNeeds, has)
			s.LocalRecords = largest(localNeeds, has)
			s.LargeRecords = largest(largeNeeds, has)
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

// needs is what stores of so many records take at their largest: of memory the index,
// local memory, Redy's memory, and the file server's.
func needs(records int64, value int, local, cache float64) need {
	index := int64(1) << bits.Len64(uint64(indexBytesLeast*records))
	log := ycsb.LogBytes(records, value)
	return need{
		memory: index + scaled(records, local+cache) + log,
		disk:   logsOnDisk * log,
		share:  log,
	}
}

func smallNeeds(records int64) need { return needs(records, smallValue, 1, smallCache) }

func localNeeds(records int64) need { return needs(records, smallValue, largestLocal, smallCache) }

func largeNeeds(records int64) need { return needs(records, largeValue, 80, largeCache) }

// largest is the most records that fit, at most the paper's.
func largest(needs func(int64) need, has Stock) int64 {
	records := int64(paperRecords)
	for records > leastRecords {
		n := needs(records)
		if float64(n.memory) <= memoryShare*float64(has.Memory) && float64(n.disk) <= diskShare*float64(has.FreeDisk) &&
			(has.Share == 0 || float64(n.share) <= diskShare*float64(has.FreeShare)) {
			break
		}
		records -= records / 20
	}
	return records
}

// factor is how much smaller than the paper's a database is.
func factor(records int64) float64 { return float64(records) / paperRecords }

// scaled is so many of the paper's gigabytes in a database of records.
func scaled(records int64, gb float64) int64 { return int64(gb * gigabyte * factor(records)) }
