package ycsb

import (
	"fmt"
	"slices"
	"time"
)

// Device is the name of a device for a store's log.
type Device string

const (
	// Redy is a Redy cache over an SSD. A manager in this process starts the cache
	// server as another process, reached over shared memory.
	Redy Device = "redy"
	// SSD is a directory of files alone.
	SSD Device = "ssd"
	// SMB is a directory of a file server: a Samba started on this machine, with its
	// share in memory.
	SMB Device = "smb"
	// Memory is a device in this process's memory, for tests and for the cost of the
	// store itself.
	Memory Device = "memory"
)

// Devices lists all of them.
var Devices = []Device{Redy, SSD, SMB, Memory}

// ParseDevice returns the device with the name of a device, or of one of the Peers.
func ParseDevice(name string) (Device, error) {
	return oneOf("device", name, slices.Concat(Devices, Peers))
}

// DefaultDepth is the default number of reads that a thread keeps pending.
const DefaultDepth = 128

// Shape says what a store holds and what it may use. Sizes are in bytes.
type Shape struct {
	Records   int64   // how many records it is made for
	ValueSize int     // of each value; keys have [KeySize]
	Memory    int64   // log and read cache kept in local memory
	ReadCache float64 // the share of Memory that is read cache (A53), as kv.Options.ReadCache
	PageSize  int     // of the log, as kv.Options.PageSize; 0: what suits Memory
	Cache     int64   // Redy's remote memory; unused on other devices
	Transport string  // how Redy's memory is reached, TransportSHM by default
	Net       string  // the network that Transport emulates: rdma, none, 2.9us,100Gbit, or one for each distance
	Depth     int     // reads that a thread keeps pending (A58)

	// RefillRate bounds the bytes a second with which holes in Redy's memory are
	// refilled. 0: device.DefaultRefillRate; negative: no refill.
	RefillRate int64

	// CacheServer is the program of Redy's cache server, with its first arguments. Empty:
	// this executable with the argument cacheserver, as in the redykv command.
	CacheServer []string
}

// LogBytes returns the size of the log that holds all records.
func (s Shape) LogBytes() int64 { return LogBytes(s.Records, s.ValueSize) }

// check returns an error for shapes that no machine can run.
func (s Shape) check() error {
	switch {
	case s.Records < 1:
		return fmt.Errorf("%d records: want at least 1", s.Records)
	case s.Records > MaxRecords:
		return fmt.Errorf("%d records: want at most %d", s.Records, int64(MaxRecords))
	case s.ValueSize < 1 || s.ValueSize > MaxValueSize:
		return fmt.Errorf("value size of %d bytes: want 1 to %d", s.ValueSize, MaxValueSize)
	case s.Memory < 1:
		return fmt.Errorf("memory of %d bytes: want a positive size", s.Memory)
	case !(s.ReadCache >= 0 && s.ReadCache < 1):
		return fmt.Errorf("read cache of %g of the memory: want 0 to less than 1", s.ReadCache)
	case s.Cache < 0:
		return fmt.Errorf("cache of %d bytes: want a size that is not negative", s.Cache)
	case s.Depth < 1 || s.Depth > MaxDepth:
		return fmt.Errorf("depth %d: want 1 to %d", s.Depth, MaxDepth)
	}
	return nil
}

// Bounds of a Shape and a Spec.
const (
	MaxValueSize = 1 << 20
	MaxDepth     = 4096
	MaxThreads   = 1024
	MaxRate      = 1e9
)

// Spec is one experiment on a loaded store: reads, as many as Threads can do
// within Duration.
type Spec struct {
	Shape
	Device       Device
	Distribution Distribution
	Threads      int
	Duration     time.Duration
	// Warmup is the time of the same load before the measurement.
	Warmup time.Duration
	// Seed selects the sequence of record numbers. A store with a read cache would
	// answer a repeated sequence from it.
	Seed int64
	// Rate is the number of reads a second that all threads together begin, evenly, even
	// if earlier reads are pending: an open loop. Latencies then count from the time at
	// which a read is due. 0: a closed loop, as fast as possible.
	Rate float64
}

// Result is the result of one experiment. Its JSON form is one line of the files that
// comparisons write. Shares are of all reads, between 0 and 1.
type Result struct {
	Experiment   string       `json:"experiment"`
	Device       Device       `json:"device"`
	Distribution Distribution `json:"distribution"`
	Threads      int          `json:"threads"`
	Depth        int          `json:"depth"`
	Records      int64        `json:"records"`
	ValueSize    int          `json:"value_size"`
	MemoryBytes  int64        `json:"memory_bytes"`
	CacheBytes   int64        `json:"cache_bytes"`
	Transport    string       `json:"transport"`
	Net          string       `json:"net"`
	DirectIO     bool         `json:"direct_io"`

	Ops     uint64  `json:"ops"`
	Seconds float64 `json:"seconds"`
	// Mops is 10^6 operations a second (A63).
	Mops float64 `json:"mops"`
	// Of a comparison: the number of runs, of which this is the one with the median Mops,
	// and the Mops of the slowest and the fastest.
	Rounds  int     `json:"rounds,omitempty"`
	MopsMin float64 `json:"mops_min,omitempty"`
	MopsMax float64 `json:"mops_max,omitempty"`
	// Latencies count from the submission of a read until its value is checked. They
	// include the wait for other reads of the thread, as Depth are pending (A15).
	P50Micros  float64 `json:"p50_us"`
	P95Micros  float64 `json:"p95_us"`
	P99Micros  float64 `json:"p99_us"`
	P999Micros float64 `json:"p999_us"`
	MaxMicros  float64 `json:"max_us"` // of those whose latency was measured
	// TargetRate is the Rate of an open loop; 0: the loop was closed.
	TargetRate float64 `json:"target_rate,omitempty"`

	// Where reads found their record.
	HitMemory float64 `json:"hit_memory"`
	HitCache  float64 `json:"hit_cache,omitempty"` // the read cache
	HitRedy   float64 `json:"hit_redy"`
	HitSSD    float64 `json:"hit_ssd"`
	HitSMB    float64 `json:"hit_smb,omitempty"`
	HitOther  float64 `json:"hit_other,omitempty"` // the memory device

	// RatioToSSD is the ratio of Mops to the SSD's under the same distribution and
	// threads; 0 if the SSD was not measured.
	RatioToSSD float64 `json:"ratio_to_ssd,omitempty"`
	// RatioToSMB is the ratio to the file server.
	RatioToSMB float64 `json:"ratio_to_smb,omitempty"`

	// Errors is the number of reads that failed or returned wrong bytes.
	Errors     uint64 `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	// Note describes events during the run that affect the figures.
	Note string `json:"note,omitempty"`

	LogBytes         int64  `json:"log_bytes"`          // as the store reports it
	LogBytesExpected int64  `json:"log_bytes_expected"` // by arithmetic
	IndexBytes       int64  `json:"index_bytes"`
	HeapBytesBefore  uint64 `json:"heap_bytes_before"`        // Go heap before any store was opened
	HeapBytesAfter   uint64 `json:"heap_bytes_after"`         // and after this run
	ResidentBytes    int64  `json:"resident_bytes,omitempty"` // memory of this process that is not shared
}
