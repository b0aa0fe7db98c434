package goycsb

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pingcap/go-ycsb/pkg/client"
)

// runNative runs a phase of the native workload, and returns the reported number of operations
// of each kind.
func runNative(t *testing.T, phase Phase, workload, dir string, assignments ...string) map[string]int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.json")
	err := execute(t, t.Context(), phase, workload, dir, append([]string{
		"workload=redykv", "requestdistribution=zipfian", "outputstyle=json", "measurement.output_file=" + out,
	}, assignments...)...)
	if err != nil {
		t.Fatalf("%s of %s: %v", phase, workload, err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]string
	if err := json.Unmarshal(text, &lines); err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for _, line := range lines {
		if counts[line["Operation"]], err = strconv.Atoi(line["Count"]); err != nil {
			t.Error(err)
		}
		least, leastErr := strconv.ParseFloat(line["Min(us)"], 64)
		most, mostErr := strconv.ParseFloat(line["Max(us)"], 64)
		if leastErr != nil || mostErr != nil || least > most {
			t.Errorf("%v", line)
		}
	}
	return counts
}

// TestNativeWorkload checks that the native workload reports every operation, and that a
// reopened store has its records.
func TestNativeWorkload(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if got := runNative(t, PhaseLoad, "workloada", dir); got["INSERT"] != 500 || got["TOTAL"] != 500 {
		t.Errorf("%v", got)
	}
	for workload, kinds := range map[string][]string{
		"workloada": {"READ", "UPDATE"}, "workloadc": {"READ"}, "workloadd": {"READ", "INSERT"}, "workloadf": {"READ", "READ_MODIFY_WRITE"},
	} {
		got := runNative(t, PhaseRun, workload, dir)
		sum := 0
		for _, kind := range kinds {
			if sum += got[kind]; got[kind] == 0 {
				t.Errorf("%s: no %s: %v", workload, kind, got)
			}
		}
		if sum != 1000 || got["TOTAL"] != 1000 || len(got) != len(kinds)+1 {
			t.Errorf("%s: %v", workload, got)
		}
	}
	// One operation at a time, with a target rate; then until the time limit.
	if got := runNative(t, PhaseRun, "workloada", dir, "operationcount=200", "target=100000"); got["TOTAL"] != 200 {
		t.Errorf("%v", got)
	}
	if got := runNative(t, PhaseRun, "workloada", dir, "operationcount=1000000000000", "maxexecutiontime=1"); got["TOTAL"] < 1000 {
		t.Errorf("%v", got)
	}
	prefix := filepath.Join(t.TempDir(), "hist-")
	runNative(t, PhaseRun, "workloada", dir, "outputstyle=json", "histogram.percentiles.export=true", "histogram.percentiles.export.filepath="+prefix)
	if text, err := os.ReadFile(prefix + "READ-percentiles.txt"); err != nil || !strings.Contains(string(text), "Percentile") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestNativeWorkloadRefuses(t *testing.T) {
	for _, assignment := range []string{
		"requestdistribution=latest", "scanproportion=0.1", PropScan + "=true", "batch.size=8", "fieldlengthdistribution=uniform",
		"measurementtype=raw", "table=other", "fieldlength=1048576", "recordcount=5000000000",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		err := execute(t, t.Context(), PhaseRun, "workloadc", dir, "workload=redykv", "dataintegrity=false", assignment)
		if !errors.Is(err, ErrProperties) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line of ErrProperties", assignment, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: files were made", assignment)
		}
	}
	// Another value size than when it was loaded, and another store.
	dir := filepath.Join(t.TempDir(), "data")
	runNative(t, PhaseLoad, "workloadc", dir)
	err := execute(t, t.Context(), PhaseRun, "workloadc", dir, "workload=redykv", "fieldlength=30")
	if err == nil || !strings.Contains(err.Error(), "operations went wrong") {
		t.Errorf("%v", err)
	}
	p, err := Properties([]string{"workloadc"}, []string{"workload=redykv", "recordcount=10", "operationcount=10"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := nativeCreator{}.Create(p)
	if err != nil {
		t.Fatal(err)
	}
	client.NewClient(p, w, client.DbWrapper{DB: emptyDB{}}).Run(t.Context())
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "needs a store of this project") {
		t.Errorf("%v", err)
	}
}
