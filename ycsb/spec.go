package ycsb

import (
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
)

// Device is the name of a device for a store's log.
type Device string

const (
	// Redy is a Redy cache over an SSD. A manager in this process starts the cache server as
	// another process, connected over shared memory.
	Redy Device = "redy"
	// SSD is a directory of files.
	SSD Device = "ssd"
	// SMB is a directory on a file server: a Samba on this machine, with its share in memory.
	SMB Device = "smb"
	// Memory is a device in this process's memory, for tests and to measure the store itself.
	Memory Device = "memory"
)

// Devices lists all devices.
var Devices = []Device{Redy, SSD, SMB, Memory}

// ParseDevice returns the device or peer of a name.
func ParseDevice(name string) (Device, error) {
	return bench.Parse("device", name, slices.Concat(Devices, Peers))
}

// KeySize is the size of every key in bytes: the record's number, little-endian.
const KeySize = record.KeySize

// DefaultDepth is the default number of operations that a thread keeps pending.
const DefaultDepth = 128

// Shape describes a store's data and memory. Sizes are in bytes.
type Shape struct {
	Records   int64   // number of records that the store is sized for
	ValueSize int     // of each value; a key has [KeySize] bytes
	Memory    int64   // log and read cache in local memory
	ReadCache float64 // fraction of Memory for the read cache (A53), see kv.Options.ReadCache
	PageSize  int     // of the log, see kv.Options.PageSize; 0: chosen from Memory
	Cache     int64   // Redy's remote memory; unused on other devices
	Transport string  // of Redy's memory; default TransportSHM
	Net       string  // the network that Transport emulates: rdma, none, 2.9us,100Gbit, or one for each distance
	Depth     int     // operations that a thread keeps pending (A58)
	Written   bool    // the store is written to after loading, so it compacts by itself

	// RefillRate bounds the refill of holes in Redy's memory, in bytes per second. 0: no
	// bound; negative: no refill.
	RefillRate int64

	// CacheServer is the program of Redy's cache server, with its first arguments. Empty:
	// this executable with the argument cacheserver, as in the redykv command.
	CacheServer []string
}

// LogBytes returns the size of the log that holds all records.
func (s Shape) LogBytes() int64 { return LogBytes(s.Records, s.ValueSize) }

// LogBytes returns the space that records take in the log: key, value and header, rounded up to
// 8 bytes.
func LogBytes(records int64, valueSize int) int64 { return records * RecordBytes(valueSize) }

// RecordBytes returns the space that one record takes in the log.
func RecordBytes(valueSize int) int64 {
	const header = 8 // of a record of fixed size
	return (header + KeySize + int64(valueSize) + 7) &^ 7
}

// check returns an error for a shape that cannot run on any machine.
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

// Spec is one experiment on a loaded store: Threads threads carry out the operations of Mix for
// Duration.
type Spec struct {
	Shape
	Device       Device
	Mix          MixName
	Distribution Distribution
	Threads      int
	Duration     time.Duration
	// Warmup is the duration of the same load before the measurement.
	Warmup time.Duration
	// Seed selects the sequence of record numbers. It should differ between runs: a read cache
	// would answer a repeated sequence.
	Seed int64
	// Rate is the number of operations per second that all threads together begin, at even
	// intervals, even if earlier ones are pending: an open loop. Latencies then count from
	// the time at which an operation is due. 0 means a closed loop, as fast as possible.
	Rate float64
}

// Result is the result of one experiment. Its JSON form is one line of a comparison's output.
// Shares are fractions of all reads.
type Result struct {
	Experiment   string       `json:"experiment"`
	Device       Device       `json:"device"`
	Mix          MixName      `json:"mix"`
	Distribution Distribution `json:"distribution"`
	Threads      int          `json:"threads"`
	Depth        int          `json:"depth"` // operations under way for each thread
	Records      int64        `json:"records"`
	ValueSize    int          `json:"value_size"`
	MemoryBytes  int64        `json:"memory_bytes"`
	ReadCache    float64      `json:"read_cache"` // share of MemoryBytes
	// MemoryLimit is the limit of the memory of the store's process, page cache included; 0:
	// none. Limit says what enforces it, or why there is none.
	MemoryLimit int64  `json:"memory_limit_bytes"`
	Limit       string `json:"memory_limit,omitempty"`
	CacheBytes  int64  `json:"cache_bytes"`
	Seed        int64  `json:"seed"` // of the record numbers
	Transport   string `json:"transport"`
	Net         string `json:"net"`
	DirectIO    bool   `json:"direct_io"`

	Ops     uint64  `json:"ops"`
	Seconds float64 `json:"seconds"`
	// Mops is the throughput in 10^6 operations per second (A63).
	Mops float64 `json:"mops"`
	// In a comparison: the number of runs, and the Mops of the slowest and the fastest. This
	// result is that of the run with the median Mops.
	Rounds  int     `json:"rounds,omitempty"`
	MopsMin float64 `json:"mops_min,omitempty"`
	MopsMax float64 `json:"mops_max,omitempty"`
	// A latency is the time from the submission of an operation until it has completed, with a
	// read's value checked. It includes the wait for the thread's other pending operations (A15).
	P50Micros  float64 `json:"p50_us"`
	P95Micros  float64 `json:"p95_us"`
	P99Micros  float64 `json:"p99_us"`
	P999Micros float64 `json:"p999_us"`
	MaxMicros  float64 `json:"max_us"` // of the measured operations
	// TargetRate is the Rate of an open loop; 0: a closed loop.
	TargetRate float64 `json:"target_rate,omitempty"`

	// Where reads found their record.
	HitMemory float64 `json:"hit_memory"`
	HitCache  float64 `json:"hit_cache,omitempty"` // the read cache
	HitRedy   float64 `json:"hit_redy"`
	HitSSD    float64 `json:"hit_ssd"`
	HitSMB    float64 `json:"hit_smb,omitempty"`
	HitOther  float64 `json:"hit_other,omitempty"` // the memory device

	// RatioToSSD is the ratio of Mops to the SSD's with the same mix, distribution and threads;
	// 0 if the SSD was not measured. In a comparison this ratio and the next ones are the medians
	// of the rounds' ratios.
	RatioToSSD float64 `json:"ratio_to_ssd,omitempty"`
	// OfDisk is the share of the disk's own reads per second, with as many in flight, that the
	// SSD's cold reads are; 0 if those were not measured.
	OfDisk float64 `json:"of_disk,omitempty"`
	// RatioToSMB is the ratio to the file server's, and RatioToPebble to the faster of Pebble's
	// rows.
	RatioToSMB    float64 `json:"ratio_to_smb,omitempty"`
	RatioToPebble float64 `json:"ratio_to_pebble,omitempty"`
	// ShareOfDevice is, for a mix that writes, the bytes per second that the SSD's store wrote, as
	// a share of what the disk alone writes; 0 if that was not measured.
	ShareOfDevice float64 `json:"share_of_device,omitempty"`

	// Errors is the number of operations that failed or returned wrong bytes.
	Errors     uint64 `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	// Note describes events during the run that affect the figures.
	Note string `json:"note,omitempty"`
	// Killed says when, in a comparison, the kernel killed the store's process at its memory
	// limit. The figures are of the rounds before; there may be none.
	Killed string `json:"killed,omitempty"`

	// DiskBytes is what the store's process read from disks during the run, DiskWritten what it
	// wrote, and FilesBytes the space that its files took at the end.
	DiskBytes   int64 `json:"disk_bytes,omitempty"`
	DiskWritten int64 `json:"disk_written_bytes,omitempty"`
	FilesBytes  int64 `json:"files_bytes,omitempty"`
	// WriteAmplification is DiskWritten divided by the bytes of the keys and values in the
	// operations that wrote, and SpaceAmplification FilesBytes divided by those of all records.
	WriteAmplification float64 `json:"write_amplification,omitempty"`
	SpaceAmplification float64 `json:"space_amplification,omitempty"`
	// SettleSeconds is how long after the run the store's background work went on, at most ten
	// seconds: what the run left to be done is not in Mops.
	SettleSeconds float64 `json:"settle_s,omitempty"`
	// Processors is the number of processors that the store's process used, on average, with the
	// threads of the load.
	Processors float64 `json:"processors,omitempty"`

	LogBytes         int64  `json:"log_bytes"`          // reported by the store
	LogBytesExpected int64  `json:"log_bytes_expected"` // computed from the records' sizes
	IndexBytes       int64  `json:"index_bytes"`
	HeapBytesBefore  uint64 `json:"heap_bytes_before"`        // Go heap before any store was opened
	HeapBytesAfter   uint64 `json:"heap_bytes_after"`         // and after this run
	ResidentBytes    int64  `json:"resident_bytes,omitempty"` // memory of this process that is not shared
}
