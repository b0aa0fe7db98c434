package goycsb

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/magiconair/properties"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// execute executes one phase of a workload in dir.
func execute(t *testing.T, ctx context.Context, phase Phase, workload, dir string, assignments ...string) error {
	t.Helper()
	p, err := Properties([]string{workload}, append([]string{
		"recordcount=500", "operationcount=1000", "threadcount=2", "fieldlength=20", "dataintegrity=true",
		PropDir + "=" + dir, PropMemory + "=64KiB",
	}, assignments...))
	if err != nil {
		t.Fatal(err)
	}
	return Execute(ctx, p, phase)
}

func TestCoreWorkloads(t *testing.T) {
	testrun.SkipRaced(t, "go-ycsb has data races of its own")
	for _, workload := range Workloads() {
		t.Run(workload, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			for _, phase := range []Phase{PhaseLoad, PhaseRun, PhaseRun} { // the second run opens the store again
				if err := execute(t, t.Context(), phase, workload, dir); err != nil {
					t.Fatalf("%s: %v", phase, err)
				}
			}
		})
	}
}

// TestLoadCounts checks that both drivers insert as many records as YCSB's client: insertcount of them,
// or else recordcount, from insertstart on.
func TestLoadCounts(t *testing.T) {
	testrun.SkipRaced(t, "go-ycsb has data races of its own")
	for _, workload := range []string{"core", WorkloadNative} {
		for _, c := range []struct {
			sizes []string
			want  int64
		}{
			{[]string{"recordcount=1000", "insertstart=500"}, 1000},
			{[]string{"recordcount=1000", "insertstart=300"}, 1000},
			{[]string{"recordcount=1000", "insertstart=300", "insertcount=200"}, 200},
			{[]string{"recordcount=10", "insertstart=9", "threadcount=5"}, 10},
		} {
			p, err := Properties(nil, append([]string{
				"workload=" + workload, "fieldlength=8", "requestdistribution=zipfian", PropDir + "=" + t.TempDir(), PropMemory + "=1MiB",
			}, c.sizes...))
			if err == nil {
				err = Execute(t.Context(), p, PhaseLoad)
			}
			if err != nil {
				t.Fatalf("%s, %v: %v", workload, c.sizes, err)
			}
			if got := recordsOf(t, p); got != c.want {
				t.Errorf("%s, %v: %d records, want %d", workload, c.sizes, got, c.want)
			}
		}
	}
}

// recordsOf returns the number of records in the store of the properties.
func recordsOf(t *testing.T, p *properties.Properties) (n int64) {
	t.Helper()
	s, err := readSettings(p, true)
	if err != nil {
		t.Fatal(err)
	}
	db, err := open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, err := range db.Store().Scan() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestZipfianReadsWhatWasLoaded checks that no operation misses on a complete load, and that one which
// does is an error.
func TestZipfianReadsWhatWasLoaded(t *testing.T) {
	testrun.SkipRaced(t, "go-ycsb has data races of its own")
	for _, records := range []string{"recordcount=2", "recordcount=10"} {
		dir := t.TempDir()
		if err := execute(t, t.Context(), PhaseLoad, "workloadc", dir, records); err != nil {
			t.Fatal(err)
		}
		for _, mix := range []string{"insertproportion=0", "insertproportion=0.5"} {
			if err := execute(t, t.Context(), PhaseRun, "workloadc", dir, records, mix, "readproportion=0.5"); err != nil {
				t.Errorf("%s, %s: %v", records, mix, err)
			}
		}
	}
	dir := t.TempDir()
	if err := execute(t, t.Context(), PhaseLoad, "workloadc", dir, "insertcount=250"); err != nil {
		t.Fatal(err)
	}
	for _, distribution := range []string{"zipfian", "uniform"} {
		err := execute(t, t.Context(), PhaseRun, "workloadc", dir, "requestdistribution="+distribution)
		if !errors.Is(err, kv.ErrNotFound) || !strings.Contains(err.Error(), "operations failed") {
			t.Errorf("half a load, %s: %v", distribution, err)
		}
	}
}

func TestScanNeedsALoadThatKeepsOrder(t *testing.T) {
	testrun.SkipRaced(t, "go-ycsb has data races of its own")
	dir := t.TempDir()
	if err := execute(t, t.Context(), PhaseLoad, "workloada", dir); err != nil {
		t.Fatal(err)
	}
	if err := execute(t, t.Context(), PhaseRun, "workloade", dir); !errors.Is(err, ErrNoScan) {
		t.Errorf("scans of records loaded without order: %v", err)
	}
	other := t.TempDir()
	if err := execute(t, t.Context(), PhaseLoad, "workloada", other, PropScan+"=true"); err != nil {
		t.Fatal(err)
	}
	// A scan finds inserts of an earlier run without scans.
	if err := execute(t, t.Context(), PhaseRun, "workloadd", other); err != nil {
		t.Fatal(err)
	}
	if err := execute(t, t.Context(), PhaseRun, "workloade", other); err != nil {
		t.Error(err)
	}
}

func TestTimeEndsARun(t *testing.T) {
	testrun.SkipRaced(t, "go-ycsb has data races of its own")
	dir := t.TempDir()
	if err := execute(t, t.Context(), PhaseLoad, "workloadc", dir); err != nil {
		t.Fatal(err)
	}
	// More operations than fit into the time of a test.
	if err := execute(t, t.Context(), PhaseRun, "workloadc", dir, "operationcount=1000000000000", "maxexecutiontime=1"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := execute(t, ctx, PhaseRun, "workloadc", dir, "operationcount=1000000000000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	testrun.SkipRaced(t, "go-ycsb has data races of its own")
	err := execute(t, t.Context(), PhaseLoad, "workloada", t.TempDir(), "measurement.output_file=/no/such/place")
	if err == nil || !strings.Contains(err.Error(), "/no/such/place") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

// TestBlanksBehindValues checks that blanks after a value are ignored, as in go-ycsb's
// template.
func TestBlanksBehindValues(t *testing.T) {
	p, err := Properties([]string{"workloada"}, []string{"recordcount=600 ", "threadcount=500 ", "requestdistribution=latest\t", "redykv.dir=" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKinds(p); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"recordcount": "600", "threadcount": "500", "requestdistribution": "latest"} {
		if got := p.GetString(name, ""); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if n := p.GetInt("threadcount", 1); n != 500 {
		t.Errorf("%d threads, want 500", n)
	}
}

// TestExecuteRefuses checks that bad values are errors. go-ycsb would use a default, or exit
// the process.
func TestExecuteRefuses(t *testing.T) {
	for _, assignment := range []string{
		"recordcount=many", "recordcount=0", "recordcount=-5", "recordcount=99999999999999999999",
		"operationcount=1", "operationcount=x", "threadcount=0", "threadcount=5000", "batch.size=0",
		"fieldcount=0", "fieldcount=1000000000", "fieldlength=1000000000000", "maxscanlength=1000000000000", "zeropadding=1000000",
		"fieldlength=0", "measurement.interval=0", "target=-1", "maxexecutiontime=soon",
		"insertstart=600", "insertcount=501", "readproportion=2", "updateproportion=NaN", "readallfields=maybe",
		"requestdistribution=normal", "scanlengthdistribution=latest", "fieldlengthdistribution=histogram",
		"fieldlengthdistribution=uniform", "measurementtype=none", "outputstyle=xml", "workload=mine",
		PropDevice + "=tape", PropDevice + "=memory", PropMemory + "=0", PropMemory + "=lots",
		PropMemory + "=4000TiB", PropCache + "=-1", PropScan + "=perhaps",
		"redykv.cahce=1GiB", "Redykv.dir=elsewhere", "redykv.=1",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		err := execute(t, t.Context(), PhaseRun, "workloada", dir, assignment)
		if !errors.Is(err, ErrProperties) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line of ErrProperties", assignment, err)
		}
	}
	for _, workload := range []string{"workloade", "workloadf"} {
		if err := execute(t, t.Context(), PhaseRun, workload, t.TempDir(), "batch.size=10"); !errors.Is(err, ErrProperties) {
			t.Errorf("%s in batches: %v", workload, err)
		}
	}
}

// TestFilesInMemory checks that the records count as memory if the directory is there.
func TestFilesInMemory(t *testing.T) {
	if !machine.InMemory("/dev/shm") {
		t.Skip("no directory in memory here")
	}
	for dir, want := range map[string]string{t.TempDir(): "", "/dev/shm/redykv-test-none": "the files in /dev/shm/redykv-test-none, which is in memory, need "} {
		p, err := Properties([]string{"workloada"}, []string{"recordcount=1000", "fieldlength=1000000", "fieldcount=1000", PropMemory + "=1MiB", PropDir + "=" + dir})
		if err != nil {
			t.Fatal(err)
		}
		_, err = readSettings(p, true)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

func TestProperties(t *testing.T) {
	p, err := Properties([]string{"workloada", "workloadc"}, []string{"recordcount=7", "a=b=c", "x=${x}"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"recordcount": "7", "readproportion": "1", "a": "b=c", "x": "${x}", "requestdistribution": "zipfian",
	} {
		if got := p.GetString(name, ""); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, bad := range [][2]string{{"no such workload", "a=b"}, {"workloada", "recordcount"}, {"workloada", "=1"}} {
		if _, err := Properties([]string{bad[0]}, []string{bad[1]}); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
