package store

import (
	"github.com/redykv/redykv/ycsb"
)

// Row is the result of one cell. Its JSON form is one line.
type Row struct {
	Store        string            `json:"store"` // redykv, or a peer
	Case         string            `json:"case"`  // memory or cold
	Op           Op                `json:"op"`
	Distribution ycsb.Distribution `json:"distribution"`
	Mode         Mode              `json:"mode"`
	Threads      int               `json:"threads"`
	Records      int64             `json:"records"`
	ValueSize    int               `json:"value_size"`
	Layout       string            `json:"layout,omitempty"` // fixed or variable; not of a peer
	Depth        int               `json:"depth"`

	// ValueBytesRead and ValueBytesWritten are the bytes of a value that an operation reads
	// and writes, on average.
	ValueBytesRead    float64 `json:"value_bytes_read"`
	ValueBytesWritten float64 `json:"value_bytes_written"`

	// Mops is 10^6 operations a second of all threads together, of the slice with the median
	// throughput; the range of all Slices is MopsMin to MopsMax. CPUShare is the share of
	// their time for which the threads had a processor; well below 1, others used the machine.
	Mops     float64 `json:"mops"`
	MopsMin  float64 `json:"mops_min"`
	MopsMax  float64 `json:"mops_max"`
	Slices   int     `json:"slices"`
	CPUShare float64 `json:"cpu_share"`
	// LimitMops is half of the 10^6 lines that as many threads load in a second from
	// memory of the same size. CopyMops is the number of values of this size that they
	// copy from random places, 0 for small values and for operations that copy none.
	LimitMops float64 `json:"limit_mops"`
	CopyMops  float64 `json:"copy_mops,omitempty"`
	// OfLimit and OfCopying are the shares of these. Like all ratios of a row, they are the
	// medians of the slices' ratios.
	OfLimit   float64 `json:"of_limit"`
	OfCopying float64 `json:"of_copying,omitempty"`
	// GeneratorNanos is the time of a thread for one operation without the store. It is
	// included in Mops.
	GeneratorNanos float64 `json:"generator_ns"`
	// Scaling is the ratio of Mops to the same cell with one thread; 0 if there is none.
	Scaling float64 `json:"scaling,omitempty"`
	// RatioToPeer is the ratio of Mops to the peer's plain calls of the same operation,
	// distribution and threads, as the peer has no batches; 0 if there are none.
	RatioToPeer float64 `json:"ratio_to_peer,omitempty"`

	Operations  uint64  `json:"operations"`
	Seconds     float64 `json:"seconds"` // of measuring, all slices together
	AllocsPerOp float64 `json:"allocs_per_op"`
	// GCCPUShare is the collector's CPU time over the time of the measured
	// threads, with one collection forced in one of the slices.
	GCCPUShare float64 `json:"gc_cpu_share"`
	// RSSBytes is the process's memory without the yardstick's.
	RSSBytes   int64 `json:"rss_bytes"`
	LogBytes   int64 `json:"log_bytes,omitempty"`
	IndexBytes int64 `json:"index_bytes,omitempty"`

	// Shares of the cell's reads that found their record in the log's memory, in the
	// read cache, and on the device.
	HitMemory float64 `json:"hit_memory"`
	HitCache  float64 `json:"hit_cache"`
	HitDevice float64 `json:"hit_device"`
}

// Report is the result of a run.
type Report struct {
	Machine        string
	Spec           Spec
	FootprintBytes int64 // of the yardstick: the store's index and log
	Load           struct {
		Seconds float64
		Mops    float64
	}
	Peer   string // the peer in words; empty without one
	Limits []Limit
	Rows   []Row
}

// Limit has the yardsticks' results for a number of threads.
type Limit struct {
	Threads        int
	LinesPerSecond float64
	CopyMops       float64
	GeneratorNanos float64
}
