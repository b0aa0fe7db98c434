package goycsb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	"github.com/pingcap/go-ycsb/pkg/util"
	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// WorkloadNative is the value of property workload that runs package ycsb's driver in
// go-ycsb's client, on a [DB]. Keys are record numbers. A value is one piece of fieldcount
// times fieldlength bytes, and every read checks it. Each thread has a generator and a
// session, and keeps many operations pending. It measures every 31st operation, in
// nanoseconds. The report has the form of go-ycsb's, with fractions of microseconds.
const WorkloadNative = "redykv"

func init() { goycsb.RegisterWorkloadCreator(WorkloadNative, nativeCreator{}) }

type nativeCreator struct{}

// Create implements go-ycsb's WorkloadCreator.
func (nativeCreator) Create(p *properties.Properties) (goycsb.Workload, error) {
	if err := checkNative(p); err != nil {
		return nil, fmt.Errorf("workload %s: %w", WorkloadNative, err)
	}
	return newNative(p), nil
}

// checkNative returns an error for properties that the native workload does not support.
func checkNative(p *properties.Properties) error {
	size := p.GetInt64(prop.FieldCount, prop.FieldCountDefault) * p.GetInt64(prop.FieldLength, prop.FieldLengthDefault)
	distribution := p.GetString(prop.RequestDistribution, prop.RequestDistributionDefault)
	switch {
	case !slices.Contains(ycsb.Distributions, ycsb.Distribution(distribution)):
		return fmt.Errorf("property %s: %q is not one of %v", prop.RequestDistribution, distribution, ycsb.Distributions)
	case p.GetFloat64(prop.ScanProportion, 0) > 0 || p.GetBool(PropScan, false):
		return errors.New("scans are not supported")
	case p.GetInt(prop.BatchSize, 1) > 1:
		return fmt.Errorf("property %s: batches are not supported, since many operations are pending at any time", prop.BatchSize)
	case p.GetString(prop.FieldLengthDistribution, "constant") != "constant":
		return fmt.Errorf("property %s: want constant", prop.FieldLengthDistribution)
	case p.GetString(prop.MeasurementType, prop.MeasurementTypeDefault) != "histogram":
		return fmt.Errorf("property %s: want histogram", prop.MeasurementType)
	case p.GetString(prop.TableName, prop.TableNameDefault) != prop.TableNameDefault:
		return fmt.Errorf("property %s: want %s", prop.TableName, prop.TableNameDefault)
	case size < 1 || size > ycsb.MaxValueSize:
		return fmt.Errorf("values of %d bytes: want 1 to %d", size, ycsb.MaxValueSize)
	case p.GetInt64(prop.RecordCount, 0) > ycsb.MaxRecords:
		return fmt.Errorf("property %s: want at most %d", prop.RecordCount, int64(ycsb.MaxRecords))
	}
	return nil
}

// native is the workload of one phase.
type native struct {
	spec    ycsb.StreamSpec
	inserts atomic.Int64
	p       *properties.Properties

	mu      sync.Mutex  // guards the fields below
	counts  ycsb.Counts // of the threads that have ended
	failure error       // the first error of a thread
	began   time.Time   // when the first thread's warm-up ended
}

var _ goycsb.Workload = (*native)(nil)

func newNative(p *properties.Properties) *native {
	records, first := p.GetInt64(prop.RecordCount, 0), p.GetInt64(prop.InsertStart, 0)
	w := &native{p: p}
	w.spec = ycsb.StreamSpec{
		First: first, Records: p.GetInt64(prop.InsertCount, records-first),
		ValueSize:    p.GetInt(prop.FieldCount, int(prop.FieldCountDefault)) * p.GetInt(prop.FieldLength, int(prop.FieldLengthDefault)),
		Depth:        ycsb.DefaultDepth,
		Distribution: ycsb.Distribution(p.GetString(prop.RequestDistribution, prop.RequestDistributionDefault)),
		Mix: ycsb.Mix{
			ycsb.Read:            p.GetFloat64(prop.ReadProportion, prop.ReadProportionDefault),
			ycsb.Update:          p.GetFloat64(prop.UpdateProportion, prop.UpdateProportionDefault),
			ycsb.Insert:          p.GetFloat64(prop.InsertProportion, prop.InsertProportionDefault),
			ycsb.ReadModifyWrite: p.GetFloat64(prop.ReadModifyWriteProportion, prop.ReadModifyWriteProportionDefault),
		},
		Inserts: &w.inserts,
	}
	w.inserts.Store(records)
	if !p.GetBool(prop.DoTransactions, true) {
		w.spec.Mix = ycsb.Mix{ycsb.Insert: 1}
		w.inserts.Store(first)
	}
	if p.GetInt64(prop.Target, 0) > 0 {
		w.spec.Depth = 1 // the client sleeps between operations, and nothing would poll
	}
	return w
}

// nativeThread is the state of one goroutine. Its context holds it.
type nativeThread struct {
	id     int64
	stream *ycsb.Stream // nil until the first operation
	counts bool         // the warm-up is over
}

type nativeKey struct{}

// InitThread implements go-ycsb's Workload.
func (w *native) InitThread(ctx context.Context, id, _ int) context.Context {
	return context.WithValue(ctx, nativeKey{}, &nativeThread{id: int64(id)})
}

// CleanupThread implements go-ycsb's Workload. It waits for pending operations.
func (w *native) CleanupThread(ctx context.Context) {
	t, ok := ctx.Value(nativeKey{}).(*nativeThread)
	if !ok || t.stream == nil {
		return
	}
	err := t.stream.Close()
	counts := t.stream.Take()
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.counts {
		w.counts.Add(counts)
	}
	w.fail(err)
}

// fail records the first error. The caller holds w.mu.
func (w *native) fail(err error) {
	if w.failure == nil {
		w.failure = err
	}
}

// Load implements go-ycsb's Workload. The client does not call it.
func (w *native) Load(context.Context, goycsb.DB, int64) error { return nil }

// DoInsert implements go-ycsb's Workload.
func (w *native) DoInsert(ctx context.Context, db goycsb.DB) error { return w.DoTransaction(ctx, db) }

// DoTransaction implements go-ycsb's Workload. It begins an operation, which may be pending
// when it returns.
func (w *native) DoTransaction(ctx context.Context, db goycsb.DB) error {
	t, ok := ctx.Value(nativeKey{}).(*nativeThread)
	if !ok {
		return errors.New("goycsb: the context is not one that InitThread returned")
	}
	if !t.counts {
		if err := w.begin(t, db); err != nil {
			return err
		}
	}
	err := t.stream.Next(ctx)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(err)
	return err
}

// begin opens a thread's stream and, when the warm-up is over, resets its counts.
func (w *native) begin(t *nativeThread, db goycsb.DB) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.stream == nil {
		store, err := storeOf(db)
		if err == nil {
			spec := w.spec
			spec.Seed = time.Now().UnixNano()*ycsb.MaxThreads + t.id
			t.stream, err = ycsb.NewStream(store, spec)
		}
		if err != nil {
			w.fail(err)
			return err
		}
	}
	if t.counts = measurement.IsWarmUpFinished(); t.counts {
		t.stream.Take()
		if w.began.IsZero() {
			w.began = time.Now()
		}
	}
	return nil
}

// storeOf returns the kv.Store of a go-ycsb database, or an error if it has none.
func storeOf(db goycsb.DB) (*kv.Store, error) {
	if wrapped, ok := db.(client.DbWrapper); ok {
		db = wrapped.DB
	}
	with, ok := db.(interface{ Store() *kv.Store })
	if !ok {
		return nil, fmt.Errorf("goycsb: workload %s needs a store of this project, not a %T", WorkloadNative, db)
	}
	return with.Store(), nil
}

// DoBatchInsert implements go-ycsb's Workload. checkNative refuses batches.
func (w *native) DoBatchInsert(context.Context, int, goycsb.DB) error { return errNoBatches }

// DoBatchTransaction implements go-ycsb's Workload, as DoBatchInsert.
func (w *native) DoBatchTransaction(context.Context, int, goycsb.DB) error { return errNoBatches }

var errNoBatches = fmt.Errorf("goycsb: workload %s has no batches", WorkloadNative)

// Close implements go-ycsb's Workload. It returns the first error of an operation.
func (w *native) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	failed := uint64(0)
	for _, c := range w.counts.Kinds {
		failed += c.Errors
	}
	if failed > 0 {
		return fmt.Errorf("goycsb: %d operations went wrong (was it loaded with %s=%s and the same sizes?); the first: %w",
			failed, prop.Workload, WorkloadNative, w.counts.FirstError)
	}
	return nil
}

// report prints the results in go-ycsb's form, to its output.
func (w *native) report() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := os.Stdout
	if path := w.p.GetString(prop.MeasurementRawOutputFile, ""); path != "" {
		if out, err = os.Create(path); err != nil {
			return fmt.Errorf("goycsb: %w", err)
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	lines := w.lines(time.Since(w.began))
	switch w.p.GetString(prop.OutputStyle, util.OutputStylePlain) {
	case util.OutputStyleJson:
		util.RenderJson(out, nativeHeader, lines)
	case util.OutputStyleTable:
		util.RenderTable(out, nativeHeader, lines)
	default:
		util.RenderString(out, "%-6s - %s\n", nativeHeader, lines)
	}
	if !w.p.GetBool(prop.MeasurementHistogramPercentileExport, false) {
		return nil
	}
	return w.export(w.p.GetString(prop.MeasurementHistogramPercentileExportFilepath, prop.MeasurementHistogramPercentileExportFilepathDefault))
}

// nativeHeader has go-ycsb's names of its columns.
var nativeHeader = []string{
	"Operation", "Takes(s)", "Count", "OPS", "Avg(us)", "Min(us)", "Max(us)",
	"50th(us)", "90th(us)", "95th(us)", "99th(us)", "99.9th(us)", "99.99th(us)",
}

// lines returns a line per kind of operation, and a total.
func (w *native) lines(took time.Duration) (lines [][]string) {
	total := ycsb.Counted{Latencies: ycsb.NewLatencies()}
	add := func(name string, c ycsb.Counted) {
		line := []string{name, fmt.Sprintf("%.1f", took.Seconds()), fmt.Sprint(c.Ops), fmt.Sprintf("%.1f", float64(c.Ops)/took.Seconds())}
		micros := func(ns float64) { line = append(line, fmt.Sprintf("%.3f", ns/1e3)) }
		h := c.Latencies
		if h == nil { // no operation was measured
			h = ycsb.NewLatencies()
		}
		micros(h.Mean())
		micros(float64(h.Min()))
		micros(float64(h.Max()))
		for _, part := range []float64{50, 90, 95, 99, 99.9, 99.99} {
			micros(float64(h.ValueAtQuantile(part)))
		}
		lines = append(lines, line)
	}
	for kind, c := range w.counts.Kinds {
		if c.Ops == 0 {
			continue
		}
		add(ycsb.Kind(kind).String(), c)
		total.Add(c)
	}
	if total.Ops > 0 {
		add("TOTAL", total)
	}
	slices.SortFunc(lines, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return lines
}

// export writes each histogram, in microseconds, to a file.
func (w *native) export(prefix string) error {
	for kind, c := range w.counts.Kinds {
		if c.Latencies == nil {
			continue
		}
		out, err := os.Create(fmt.Sprintf("%s%v-percentiles.txt", prefix, ycsb.Kind(kind)))
		if err != nil {
			return fmt.Errorf("goycsb: %w", err)
		}
		_, err = c.Latencies.PercentilesPrint(out, 1, 1000)
		if err = errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("goycsb: %w", err)
		}
	}
	return nil
}
