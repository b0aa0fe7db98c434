package goycsb

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/prop"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// Properties of this package.
const (
	PropDir    = "redykv.dir"    // directory of the files; default DefaultDir
	PropDevice = "redykv.device" // ssd (default) or redy
	PropMemory = "redykv.memory" // log in local memory, a size; default 256MiB
	PropCache  = "redykv.cache"  // Redy's remote memory, a size; default 1GiB
	PropNet    = "redykv.net"    // emulated network, as --net of compare; default rdma
	PropScan   = "redykv.scan"   // keep an ordered set of keys; default: whether the workload scans
)

// ownProps lists all of them. Any other property with ownPrefix is an error.
var ownProps = []string{PropDir, PropDevice, PropMemory, PropCache, PropNet, PropScan}

// ownPrefix begins the names of these properties, in letters of either case.
const ownPrefix = "redykv."

// DefaultDir is the default directory of the files.
const DefaultDir = "redykv-ycsb"

// settings has the checked properties that this package uses.
type settings struct {
	device  ycsb.Device
	dir     string
	shape   ycsb.Shape // Records is the most records that the store may hold; their sizes vary
	scan    bool
	seconds int64 // maxexecutiontime; 0: no limit
}

// readSettings checks all properties that go-ycsb or this package reads. go-ycsb itself uses
// its default for a number that it cannot parse, and exits the process for other bad values.
// loading means that records are inserted, rather than transactions run.
func readSettings(p *properties.Properties, loading bool) (settings, error) {
	if err := checkKinds(p); err != nil {
		return settings{}, err
	}
	if err := checkWorkload(p, loading); err != nil {
		return settings{}, err
	}
	if p.GetString(prop.Workload, "") == WorkloadNative {
		if err := checkNative(p); err != nil {
			return settings{}, fmt.Errorf("workload %s: %w", WorkloadNative, err)
		}
	}
	s := settings{
		dir:     p.GetString(PropDir, DefaultDir),
		scan:    p.GetFloat64(prop.ScanProportion, 0) > 0,
		seconds: p.GetInt64(prop.MaxExecutiontime, 0),
		shape: ycsb.Shape{
			Records: p.GetInt64(prop.RecordCount, 0),
			Net:     p.GetString(PropNet, "rdma"),
			Depth:   kv.DefaultQueueDepth,
		},
	}
	// The run phase may insert more records; the index is sized for them too.
	s.shape.Records += int64(float64(p.GetInt64(prop.OperationCount, 0)) * p.GetFloat64(prop.InsertProportion, 0))
	s.scan = p.GetBool(PropScan, s.scan)
	for name, size := range map[string]struct {
		value *int64
		def   string
	}{PropMemory: {&s.shape.Memory, "256MiB"}, PropCache: {&s.shape.Cache, "1GiB"}} {
		parsed, err := units.ParseSize(p.GetString(name, size.def))
		if err != nil || parsed < 1 {
			return settings{}, fmt.Errorf("property %s: %q is not a positive size such as 64MiB", name, p.GetString(name, ""))
		}
		*size.value = int64(parsed)
	}
	// The other devices do not keep data from load to run, or are other stores.
	if s.device = ycsb.Device(p.GetString(PropDevice, string(ycsb.SSD))); s.device != ycsb.SSD && s.device != ycsb.Redy {
		return settings{}, fmt.Errorf("property %s: %q: want %s or %s", PropDevice, s.device, ycsb.SSD, ycsb.Redy)
	}
	if _, err := fabric.ParseNetwork(s.shape.Net); err != nil {
		return settings{}, fmt.Errorf("property %s: %w", PropNet, err)
	}
	need, what := s.shape.MemoryOn(s.device), "index and cache"
	if machine.InMemory(s.dir) {
		fields := p.GetInt64(prop.FieldCount, prop.FieldCountDefault) * p.GetInt64(prop.FieldLength, prop.FieldLengthDefault)
		need += float64(s.shape.Records) * float64(fields)
		what = "index, cache and the files in " + s.dir + ", which is in memory,"
	}
	if have := mem.Total(); have > 0 && need > float64(have) {
		return settings{}, fmt.Errorf("%s, %s need %v, and this machine has %v of memory",
			PropMemory, what, units.Size(min(need, 1<<62)), units.Size(have))
	}
	return s, nil
}

// kinds lists properties by how they are parsed.
var kinds = struct {
	whole, positive, share, boolean []string
	oneOf                           map[string][]string
}{
	whole: []string{
		prop.InsertStart, prop.InsertCount, prop.OperationCount, prop.Target, prop.MaxExecutiontime,
		prop.WarmUpTime, prop.ZeroPadding, prop.InsertionRetryLimit, prop.InsertionRetryInterval,
	},
	positive: []string{
		prop.RecordCount, prop.ThreadCount, prop.BatchSize, prop.FieldCount, prop.FieldLength,
		prop.MaxScanLength, prop.LogInterval,
	},
	share: []string{
		prop.ReadProportion, prop.UpdateProportion, prop.InsertProportion, prop.ScanProportion,
		prop.ReadModifyWriteProportion, prop.HotspotDataFraction, prop.HotspotOpnFraction, prop.ExponentialFrac,
	},
	boolean: []string{
		prop.ReadAllFields, prop.WriteAllFields, prop.DataIntegrity, prop.Silence, prop.Verbose,
		prop.MeasurementHistogramPercentileExport, PropScan,
	},
	oneOf: map[string][]string{
		prop.Workload:                {"core", "site.ycsb.workloads.CoreWorkload", WorkloadNative},
		prop.RequestDistribution:     {"uniform", "sequential", "zipfian", "latest", "hotspot", "exponential"},
		prop.ScanLengthDistribution:  {"uniform", "zipfian"},
		prop.FieldLengthDistribution: {"constant", "uniform", "zipfian"},
		prop.InsertOrder:             {"hashed", "ordered"},
		prop.MeasurementType:         {"histogram", "raw", "csv"},
		prop.OutputStyle:             {"plain", "table", "json"},
	},
}

// limits bounds the numbers for which go-ycsb allocates memory or loops.
var limits = map[string]int64{
	prop.ThreadCount:   ycsb.MaxThreads,
	prop.FieldCount:    10_000,
	prop.FieldLength:   1 << 20,
	prop.MaxScanLength: 10_000_000,
	prop.BatchSize:     100_000,
	prop.ZeroPadding:   1000,
}

// checkKinds checks each property on its own.
func checkKinds(p *properties.Properties) error {
	whole := func(least int64) func(string) bool {
		return func(text string) bool {
			v, err := strconv.ParseInt(text, 10, 64)
			return err == nil && v >= least && v <= math.MaxInt32*int64(1<<10)
		}
	}
	share := func(text string) bool {
		v, err := strconv.ParseFloat(text, 64)
		return err == nil && v >= 0 && v <= 1
	}
	boolean := func(text string) bool {
		return slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "1", "0"}, text)
	}
	for _, kind := range []struct {
		names []string
		want  string
		ok    func(string) bool
	}{
		{kinds.whole, "a whole number", whole(0)},
		{kinds.positive, "a positive whole number", whole(1)},
		{kinds.share, "a number from 0 to 1", share},
		{kinds.boolean, "true or false", boolean},
	} {
		for _, name := range kind.names {
			text, set, err := trim(p, name)
			if err != nil {
				return err
			}
			if set && !kind.ok(text) {
				return fmt.Errorf("property %s: %q is not %s", name, text, kind.want)
			}
		}
	}
	for _, name := range p.Keys() {
		if strings.HasPrefix(strings.ToLower(name), ownPrefix) && !slices.Contains(ownProps, name) {
			return fmt.Errorf("property %s is unknown: want one of %s", name, strings.Join(ownProps, ", "))
		}
	}
	for name, most := range limits {
		if v := p.GetInt64(name, 0); v > most {
			return fmt.Errorf("property %s: %d is more than %d", name, v, most)
		}
	}
	for name, allowed := range kinds.oneOf {
		text, set, err := trim(p, name)
		if err != nil {
			return err
		}
		if set && !slices.Contains(allowed, text) {
			return fmt.Errorf("property %s: %q is not one of %v", name, text, allowed)
		}
	}
	return nil
}

// trim removes blanks around the property's value, if it is set. go-ycsb's own template ends a
// line with a blank, and go-ycsb would use its default for such a number.
func trim(p *properties.Properties, name string) (text string, set bool, err error) {
	if text, set = p.Get(name); !set {
		return "", false, nil
	}
	text = strings.TrimSpace(text)
	if _, _, err := p.Set(name, text); err != nil {
		return "", false, fmt.Errorf("property %s: %w", name, err)
	}
	return text, true, nil
}

// checkWorkload checks properties that depend on each other.
func checkWorkload(p *properties.Properties, loading bool) error {
	records := p.GetInt64(prop.RecordCount, 0)
	threads := p.GetInt64(prop.ThreadCount, 1)
	first := p.GetInt64(prop.InsertStart, 0)
	inserts := p.GetInt64(prop.InsertCount, records-first)
	count, counted := p.GetInt64(prop.OperationCount, 0), prop.OperationCount
	if loading { // as YCSB's client: without insertcount, recordcount records from insertstart on
		count, counted = records, prop.RecordCount
		if _, given := p.Get(prop.InsertCount); given {
			count, counted = inserts, prop.InsertCount
		}
	}
	batch := p.GetInt64(prop.BatchSize, 1)
	var total float64
	for name, def := range map[string]float64{
		prop.ReadProportion:            prop.ReadProportionDefault,
		prop.UpdateProportion:          prop.UpdateProportionDefault,
		prop.InsertProportion:          prop.InsertProportionDefault,
		prop.ScanProportion:            prop.ScanProportionDefault,
		prop.ReadModifyWriteProportion: prop.ReadModifyWriteProportionDefault,
	} {
		total += p.GetFloat64(name, def)
	}
	switch {
	case records < 1:
		return fmt.Errorf("property %s is not set: give a workload or a positive number", prop.RecordCount)
	case inserts < 1 || first+inserts > records:
		return fmt.Errorf("%s %d and %s %d do not fit into %s %d", prop.InsertStart, first, prop.InsertCount, inserts, prop.RecordCount, records)
	case count < threads:
		return fmt.Errorf("property %s: %d is less than the %d threads", counted, count, threads)
	case !loading && total == 0:
		return fmt.Errorf("every proportion of the workload is 0")
	case !loading && batch > 1 && p.GetFloat64(prop.ScanProportion, 0)+p.GetFloat64(prop.ReadModifyWriteProportion, 0) > 0:
		return fmt.Errorf("property %s: go-ycsb batches neither scans nor read-modify-writes", prop.BatchSize)
	case p.GetBool(prop.DataIntegrity, false) && p.GetString(prop.FieldLengthDistribution, "constant") != "constant":
		return fmt.Errorf("property %s needs %s=constant", prop.DataIntegrity, prop.FieldLengthDistribution)
	}
	return nil
}
