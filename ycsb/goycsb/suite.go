package goycsb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// Stores of a suite, beside those of package peers.
const (
	StoreRedykv = "redykv" // this project's, on the SSD
	StoreEmpty  = "empty"  // no store: the cost of go-ycsb itself
	StoreMap    = "map"    // a Go map with a lock; a read copies the row
)

// SuiteStores returns the names of all stores that a suite can have.
func SuiteStores() []string {
	return append([]string{StoreRedykv, StoreEmpty, StoreMap}, peers.Names()...)
}

// SuiteSpec describes a suite: go-ycsb's core workloads on several stores.
type SuiteSpec struct {
	Workloads           []string // see Workloads
	Stores              []string // see SuiteStores
	Records, Operations int64
	Fields, FieldLength int64 // fields per record, bytes per field
	Threads, Rounds     int
	Memory              int64  // bytes of log in memory; a peer's cache has those of redykv's index too
	Dir                 string // an existing directory for the stores' files
}

// Check returns an error for a spec that cannot run.
func (s *SuiteSpec) Check() error {
	for _, list := range []struct {
		what        string
		names, most []string
	}{{"workload", s.Workloads, Workloads()}, {"store", s.Stores, SuiteStores()}} {
		if len(list.names) == 0 {
			return fmt.Errorf("no %s is given: want some of %v", list.what, list.most)
		}
		for i, name := range list.names {
			if !slices.Contains(list.most, name) {
				return fmt.Errorf("unknown %s %q: want some of %v", list.what, name, list.most)
			}
			if slices.Contains(list.names[:i], name) {
				return fmt.Errorf("%s %s is given twice", list.what, name)
			}
		}
	}
	switch {
	case s.Records < 1 || s.Records > ycsb.MaxRecords:
		return fmt.Errorf("%d records: want 1 to %d", s.Records, int64(ycsb.MaxRecords))
	case s.Fields < 1 || s.Fields > limits[prop.FieldCount]:
		return fmt.Errorf("%d fields: want 1 to %d", s.Fields, limits[prop.FieldCount])
	case s.FieldLength < 1 || s.FieldLength > limits[prop.FieldLength]:
		return fmt.Errorf("fields of %d bytes: want 1 to %d", s.FieldLength, limits[prop.FieldLength])
	case s.Threads < 1 || s.Threads > ycsb.MaxThreads:
		return fmt.Errorf("%d threads: want 1 to %d", s.Threads, ycsb.MaxThreads)
	case s.Operations < int64(s.Threads):
		return fmt.Errorf("%d operations: want at least %d, one per thread", s.Operations, s.Threads)
	case s.Rounds < 1:
		return fmt.Errorf("%d rounds: want at least one", s.Rounds)
	case s.Memory < 1:
		return fmt.Errorf("memory of %d bytes: want a positive size", s.Memory)
	}
	return nil
}

// SuiteRow is the result of a workload on a store. Its JSON form is one line. The figures are
// of the round with the median throughput. Latencies are go-ycsb's, in whole microseconds.
type SuiteRow struct {
	Workload string  `json:"workload"`
	Store    string  `json:"store"`
	Threads  int     `json:"threads"`
	Rounds   int     `json:"rounds"`
	Ops      float64 `json:"ops"` // per second
	Least    float64 `json:"ops_least"`
	Most     float64 `json:"ops_most"`
	// FirstIs is the ratio of the first store's throughput to this one's: the median of the
	// rounds' ratios.
	FirstIs float64 `json:"first_is"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
	P999    float64 `json:"p999_us"`
	Max     float64 `json:"max_us"`
	Failed  int64   `json:"failed,omitempty"` // operations of all rounds
}

// Suite loads each workload into all stores and runs it on them alternately, in several
// rounds, with go-ycsb's client and measurement. A process can run only one Suite or Execute
// at a time. progress may be nil.
func Suite(ctx context.Context, spec SuiteSpec, progress ycsb.Progress) ([]SuiteRow, error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProperties, err)
	}
	if err := machine.Room(spec.Dir, spec.files()); err != nil {
		return nil, fmt.Errorf("ycsb: %w", err)
	}
	progress = bench.OrQuiet(progress)
	var rows []SuiteRow
	for _, workload := range spec.Workloads {
		some, err := spec.workload(ctx, workload, progress)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", workload, err)
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// files returns the bytes of the rows in the stores that have files.
func (s *SuiteSpec) files() int64 {
	rows := float64(s.Records) * float64(s.Fields) * float64(s.FieldLength)
	n := 0
	for _, store := range s.Stores {
		if store != StoreEmpty && store != StoreMap {
			n++
		}
	}
	return int64(min(rows*float64(n), 1<<62))
}

// workload measures one workload on all stores.
func (s *SuiteSpec) workload(ctx context.Context, name string, progress ycsb.Progress) (rows []SuiteRow, err error) {
	progress.Begin(name, int64((1+s.Rounds)*len(s.Stores)))
	defer progress.End()
	dbs := make([]goycsb.DB, 0, len(s.Stores))
	defer func() {
		for _, db := range dbs {
			err = errors.Join(err, db.Close())
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, name)))
	}()
	for _, store := range s.Stores {
		db, err := s.open(ctx, name, store)
		if err != nil {
			return nil, err
		}
		dbs = append(dbs, db)
		if _, err := s.run(ctx, name, store, db, PhaseLoad); err != nil {
			return nil, err
		}
		ycsb.Settle(ctx)
		progress.Add(1)
	}
	rounds := make([][]SuiteRow, len(s.Stores))
	for range s.Rounds {
		for i, store := range s.Stores {
			row, err := s.run(ctx, name, store, dbs[i], PhaseRun)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], row)
			ycsb.Settle(ctx)
			progress.Add(1)
		}
	}
	for _, some := range rounds {
		rows = append(rows, summarize(some, rounds[0]))
	}
	return rows, nil
}

// summarize returns the row of a store's rounds, beside those of the first store.
func summarize(rounds, first []SuiteRow) SuiteRow {
	ops := func(r *SuiteRow) float64 { return r.Ops }
	row := bench.MedianBy(rounds, ops)
	row.Rounds, row.Least, row.Most, row.Failed = len(rounds), row.Ops, row.Ops, 0
	for _, r := range rounds {
		row.Failed += r.Failed
		row.Least, row.Most = min(row.Least, r.Ops), max(row.Most, r.Ops)
	}
	row.FirstIs = bench.RatioOfRounds(first, rounds, ops)
	return row
}

// properties returns the properties of a workload on a store.
func (s *SuiteSpec) properties(workload, store string, phase Phase, output string) (*properties.Properties, error) {
	return Properties([]string{workload}, []string{
		prop.RecordCount + "=" + strconv.FormatInt(s.Records, 10),
		prop.OperationCount + "=" + strconv.FormatInt(s.Operations, 10),
		prop.FieldCount + "=" + strconv.FormatInt(s.Fields, 10),
		prop.FieldLength + "=" + strconv.FormatInt(s.FieldLength, 10),
		prop.ThreadCount + "=" + strconv.Itoa(s.Threads),
		prop.LogInterval + "=1000000", // no intermediate output
		prop.OutputStyle + "=json",
		prop.MeasurementRawOutputFile + "=" + output,
		prop.DoTransactions + "=" + strconv.FormatBool(phase == PhaseRun),
		prop.Command + "=" + string(phase),
		PropDir + "=" + filepath.Join(s.Dir, workload, store),
		PropMemory + "=" + strconv.FormatInt(s.Memory, 10),
	})
}

func (s *SuiteSpec) open(ctx context.Context, workload, store string) (goycsb.DB, error) {
	switch store {
	case StoreEmpty:
		return emptyDB{}, nil
	case StoreRedykv, StoreMap:
		p, err := s.properties(workload, store, PhaseLoad, "")
		if err != nil {
			return nil, err
		}
		settings, err := readSettings(p, true)
		if err != nil {
			return nil, err
		}
		if store == StoreMap {
			return newMapDB(settings.scan), nil
		}
		return open(ctx, settings)
	}
	dir := filepath.Join(s.Dir, workload, store)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory of the store: %w", err)
	}
	peer, err := peers.Open(store, peers.Options{Dir: dir, Memory: s.Memory + kv.IndexMemory(s.Records), Records: s.Records})
	if err != nil {
		return nil, err
	}
	return newPeerDB(peer), nil
}

// run loads or runs a workload on a store.
func (s *SuiteSpec) run(ctx context.Context, workload, store string, db goycsb.DB, phase Phase) (row SuiteRow, err error) {
	out, err := os.CreateTemp(s.Dir, "measured-*.json")
	if err != nil {
		return row, fmt.Errorf("what go-ycsb measures: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(out.Name())) }()
	if err := out.Close(); err != nil {
		return row, err
	}
	p, err := s.properties(workload, store, phase, out.Name())
	if err != nil {
		return row, err
	}
	if _, err := readSettings(p, phase == PhaseLoad); err != nil {
		return row, err
	}
	err = silently(func() error {
		measurement.InitMeasure(p)
		w, err := newWorkload(p)
		if err != nil {
			return err
		}
		client.NewClient(p, w, client.DbWrapper{DB: db}).Run(ctx)
		return errors.Join(w.Close(), output(), ctx.Err())
	})
	if err != nil {
		return row, err
	}
	if db, ok := db.(*storage); ok && db.Err() != nil {
		return row, db.Err()
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		return row, fmt.Errorf("what go-ycsb measured: %w", err)
	}
	row, err = totals(text)
	row.Workload, row.Store, row.Threads = workload, store, s.Threads
	return row, err
}

// silently discards what do prints to os.Stdout: go-ycsb prints there unconditionally, into
// the tables.
func silently(do func() error) error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	stdout := os.Stdout
	os.Stdout = null
	defer func() { os.Stdout = stdout }()
	return errors.Join(do(), null.Close())
}

// totals parses go-ycsb's output: the line of all operations, and the number that failed.
func totals(text []byte) (row SuiteRow, err error) {
	var lines []map[string]string
	if err := json.Unmarshal(text, &lines); err != nil {
		return row, fmt.Errorf("what go-ycsb measured: %w", err)
	}
	found := false
	for _, line := range lines {
		number := func(name string) float64 {
			v, parseErr := strconv.ParseFloat(line[name], 64)
			if parseErr != nil {
				err = errors.Join(err, fmt.Errorf("what go-ycsb measured: %s of %s is %q", name, line["Operation"], line[name]))
			}
			return v
		}
		switch op := line["Operation"]; {
		case op == "TOTAL":
			found = true
			row.Ops, row.P50, row.P99, row.P999, row.Max = number("OPS"), number("50th(us)"), number("99th(us)"), number("99.9th(us)"), number("Max(us)")
		case strings.HasSuffix(op, "_ERROR"): // operations that failed
			row.Failed += int64(number("Count"))
		}
	}
	if !found {
		err = errors.Join(err, errors.New("what go-ycsb measured: nothing"))
	}
	return row, err
}
