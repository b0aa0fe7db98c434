package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/magiconair/properties"
	"github.com/spf13/pflag"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/advisor"
	"github.com/redykv/redykv/internal/missratio"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
	"github.com/redykv/redykv/ycsb/goycsb"
)

// adviseSource is where the accesses of a load are from.
type adviseSource struct{ admin, trace, workload string }

func (s *adviseSource) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.admin, "admin", "", "`URL` or address of a running server's --admin")
	flags.StringVar(&s.trace, "trace", "", "`FILE` with the accesses")
	flags.StringVar(&s.workload, "workload", "", "`FILE` or name of a workload of YCSB")
}

func (s *adviseSource) check() error {
	given := 0
	for _, source := range []string{s.admin, s.trace, s.workload} {
		if source != "" {
			given++
		}
	}
	if given != 1 {
		return errors.New("want one of --admin, --trace and --workload")
	}
	return nil
}

// load sets the model and the size of the data.
func (s *adviseSource) load(ctx context.Context, q *advisor.Question, valueSize int) error {
	switch {
	case s.admin != "":
		return s.ask(ctx, q)
	case s.trace != "":
		return s.replay(q, valueSize)
	}
	return s.generate(q)
}

// ask takes them from a running server.
func (s *adviseSource) ask(ctx context.Context, q *advisor.Question) error {
	url := s.admin
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	url = strings.TrimSuffix(url, "/")
	text, status, err := fetch(ctx, url+"/mrc")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s/mrc: %s", url, http.StatusText(status))
	}
	var c kv.MissRatioCurve
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("%s/mrc: %w", url, err)
	}
	switch {
	case !c.Sampling:
		return fmt.Errorf("%s: the server does not sample accesses: start it with --sample-accesses, or PUT %s/mrc?sampling=on, and ask again after some load", url, url)
	case c.Model == nil:
		return fmt.Errorf("%s: the server has sampled no accesses yet", url)
	}
	q.Model, q.Data, q.PageSize = c.Model, c.LogBytes, c.Model.PageSize
	return nil
}

// newReplay returns a replay for that much data.
func newReplay(data int64) *missratio.Replay {
	memory := max(data/4, 1<<20)
	return missratio.NewReplay(missratio.Options{Memory: memory, PageSize: int64(hlog.DefaultPageSize(memory, 4096))})
}

// recordSize returns the size of a record in the log of a store with records of variable length.
func recordSize(key, value int) int { return hlog.VariableLayout().Size(key, value, false) }

// traceAccess is a line of a trace.
type traceAccess struct {
	kind missratio.Kind
	hash uint64
	size int
}

var traceKinds = map[string]missratio.Kind{"read": missratio.Read, "write": missratio.Write, "update": missratio.Update}

// parseAccess parses a line of a trace. ok is false for an empty line.
func parseAccess(line string, valueSize int) (a traceAccess, ok bool, err error) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return a, false, nil
	}
	key := fields[0]
	if len(fields) > 1 {
		if a.kind, ok = traceKinds[strings.ToLower(fields[0])]; !ok {
			return a, false, fmt.Errorf("operation %q: want read, write or update", fields[0])
		}
		key = fields[1]
	}
	a.hash, a.size = missratio.Hash(xxhash.Sum64String(key)), recordSize(len(key), valueSize)
	if len(fields) > 2 {
		if a.size, err = strconv.Atoi(fields[2]); err != nil || a.size < 1 || a.size > hlog.MaxPageSize {
			return a, false, fmt.Errorf("size %q: want bytes, 1 to %d", fields[2], hlog.MaxPageSize)
		}
	}
	return a, true, nil
}

// replay takes them from a trace. The records of all keys are stored before, in the order of their first
// accesses: a key that is read has a record.
func (s *adviseSource) replay(q *advisor.Question, valueSize int) error {
	sizes := make(map[uint64]int)
	var first []uint64
	err := s.eachAccess(valueSize, func(a traceAccess) {
		if _, ok := sizes[a.hash]; !ok {
			sizes[a.hash] = a.size
			q.Data += int64(a.size)
			first = append(first, a.hash)
		}
	})
	if err != nil {
		return err
	}
	if len(first) == 0 {
		return fmt.Errorf("%s: no accesses", s.trace)
	}
	r := newReplay(q.Data)
	for _, hash := range first {
		r.Access(missratio.Write, hash, sizes[hash])
	}
	r.Sampler.Forget()
	if err := s.eachAccess(valueSize, func(a traceAccess) { r.Access(a.kind, a.hash, a.size) }); err != nil {
		return err
	}
	q.Model = r.Sampler.Model()
	return nil
}

// eachAccess calls f for each line of the trace.
func (s *adviseSource) eachAccess(valueSize int, f func(traceAccess)) error {
	file, err := os.Open(s.trace)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewReaderSize(file, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("--trace: %w", err)
		}
		a, ok, bad := parseAccess(line, valueSize)
		if bad != nil {
			return fmt.Errorf("%s, line %d: %w", s.trace, n, bad)
		}
		if ok {
			f(a)
		}
		if err == io.EOF {
			return nil
		}
	}
}

// workload is what is known of a workload of YCSB.
type workload struct {
	records, operations int64
	size                int
	reads, updates      float64 // shares; the rest are read-modify-writes
	distribution        ycsb.Distribution
}

// maxGenerated bounds the operations that are generated for a workload.
const maxGenerated = 20_000_000

func readWorkload(p *properties.Properties) (w workload, err error) {
	w.records = p.GetInt64("recordcount", 1000)
	value := int(p.GetInt64("fieldcount", 10) * p.GetInt64("fieldlength", 100))
	w.size = recordSize(len("user")+19, value)
	w.reads, w.updates = p.GetFloat64("readproportion", 0.95), p.GetFloat64("updateproportion", 0.05)
	modifies := p.GetFloat64("readmodifywriteproportion", 0)
	sum := w.reads + w.updates + modifies
	switch name := p.GetString("requestdistribution", "uniform"); {
	case p.GetFloat64("insertproportion", 0) > 0 || p.GetFloat64("scanproportion", 0) > 0:
		return w, errors.New("inserts and scans are not known to the advisor: pass a trace")
	case !(w.reads >= 0 && w.updates >= 0 && modifies >= 0 && sum > 0):
		return w, errors.New("the proportions of operations are not positive")
	case w.records < 1 || w.records > 1<<27:
		return w, fmt.Errorf("recordcount %d: want 1 to %d", w.records, 1<<27)
	case value < 1 || value > ycsb.MaxValueSize:
		return w, fmt.Errorf("fields of %d bytes: want 1 to %d", value, ycsb.MaxValueSize)
	case name == "uniform":
		w.distribution = ycsb.Uniform
	case name == "zipfian":
		w.distribution = ycsb.Zipfian
	default:
		return w, fmt.Errorf("requestdistribution %q: want uniform or zipfian", name)
	}
	w.reads, w.updates = w.reads/sum, w.updates/sum
	w.operations = min(max(p.GetInt64("operationcount", 1000), 10*w.records), maxGenerated)
	return w, nil
}

// generate takes them from a workload: at least ten operations for each record. The first half warms the
// simulation up.
func (s *adviseSource) generate(q *advisor.Question) error {
	p, err := goycsb.Properties([]string{s.workload}, nil)
	if err != nil {
		return err
	}
	w, err := readWorkload(p)
	if err != nil {
		return fmt.Errorf("workload %s: %w", s.workload, err)
	}
	q.Data = w.records * int64(w.size)
	r := newReplay(q.Data)
	for n := range w.records {
		r.Access(missratio.Write, missratio.Hash(uint64(n)), w.size)
	}
	numbers, err := w.distribution.Generator(w.records, 1)
	if err != nil {
		return err
	}
	kinds := rand.New(rand.NewPCG(1, 2))
	for n := range 2 * w.operations {
		if n == w.operations {
			r.Sampler.Forget()
		}
		kind := missratio.Update
		switch x := kinds.Float64(); {
		case x < w.reads:
			kind = missratio.Read
		case x < w.reads+w.updates:
			kind = missratio.Write
		}
		r.Access(kind, missratio.Hash(uint64(numbers.Next())), w.size)
	}
	q.Model = r.Sampler.Model()
	return nil
}
