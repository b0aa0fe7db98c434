package paper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/paper/stranded"
	"github.com/redykv/redykv/ycsb"
)

// Strands is a trial of a trace of VMs: how much memory was stranded. Rounds are quantiles in
// ascending order.
type Strands struct {
	Name string
	Seed uint64
}

// Series of a trace.
const (
	clusterSeries = "cluster" // samples of the cluster
	eventSeries   = "event"   // stranding events
	serverSeries  = "server"  // values by server
)

// quantiles is the number of quantiles that are stored per distribution.
const quantiles = 100

// strandWarmup is the share of a trace that fills the cluster.
const strandWarmup = 0.25

func (t Strands) trialName() string { return t.Name }

func (t Strands) plan(b *Bench) (*plan, error) {
	name := fmt.Sprintf("synthetic trace, seed %d", t.Seed)
	if b.Trace != "" {
		name = "trace " + b.Trace
	}
	return &plan{turns: []turn{{
		name: name, series: []string{clusterSeries, eventSeries, serverSeries}, lasts: time.Duration(b.VMs) * 20 * time.Microsecond,
		measure: func(context.Context, ycsb.Progress) ([]Measurement, error) { return t.measure(b) },
	}}}, nil
}

func (t Strands) measure(b *Bench) ([]Measurement, error) {
	cluster := stranded.DefaultCluster(b.Servers)
	vms, what, err := t.trace(b, cluster)
	if err != nil {
		return nil, err
	}
	r, err := stranded.Simulate(vms, cluster, strandWarmup)
	if err != nil {
		return nil, err
	}
	setting := fmt.Sprintf("%s; %d VMs placed by best fit on %d servers of %d cores and %g GB, %d refused; %.0f %% of the cores in use",
		what, r.Placed, cluster.Servers, cluster.Cores, cluster.MemoryGB, r.Refused, 100*r.Cores)
	var all []Measurement
	add := func(series string, metrics map[string][]float64) {
		for i := range quantiles {
			m := Measurement{Series: series, Round: i + 1, Setting: setting, Values: make(map[string]float64)}
			for name, some := range metrics {
				if len(some) > 0 {
					m.Values[name] = some[min(len(some)-1, (2*i+1)*len(some)/(2*quantiles))]
				}
			}
			all = append(all, m)
		}
	}
	add(clusterSeries, map[string][]float64{"unallocated_percent": sorted(r.Unallocated, 100), "stranded_percent": sorted(r.Stranded, 100)})
	add(eventSeries, map[string][]float64{"minutes": sorted(r.Events, 1.0/60)})
	reach := make(map[string][]float64)
	for i, switches := range []string{"reach1_gb", "reach3_gb", "reach5_gb"} {
		var some []float64
		for _, of := range r.Reach {
			some = append(some, of[i])
		}
		reach[switches] = sorted(some, 1)
	}
	add(serverSeries, reach)
	for i := range all {
		if all[i].Series == clusterSeries && r.PeakToTrough > 0 {
			all[i].Values["peak_to_trough"] = r.PeakToTrough
		}
	}
	return all, nil
}

func sorted(some []float64, times float64) []float64 {
	out := slices.Sorted(slices.Values(some))
	for i := range out {
		out[i] *= times
	}
	return out
}

// trace reads the trace, or generates one and stores it beside the report.
func (t Strands) trace(b *Bench, cluster stranded.Cluster) (vms []stranded.VM, what string, err error) {
	if b.Trace != "" {
		f, err := os.Open(b.Trace)
		if err != nil {
			return nil, "", err
		}
		defer func() { _ = f.Close() }() // the file was only read
		vms, err = stranded.Read(f)
		return vms, "trace " + filepath.Base(b.Trace), err
	}
	vms = stranded.Generate(t.Seed, b.VMs, cluster)
	path := filepath.Join(b.Dir, "trace-synthetic.csv")
	return vms, fmt.Sprintf("synthetic trace of seed %d", t.Seed), writeFile(path, func(w io.Writer) error { return stranded.Write(w, vms) })
}

// writeFile writes a file atomically.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path + ".partial")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // best effort
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
