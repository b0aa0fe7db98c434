package stranded

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

// Three VMs on two servers: the first server has no free core from 600 to 1200 s, with 6 of
// its 10 GB free.
func TestSimulate(t *testing.T) {
	cluster := Cluster{Servers: 2, Cores: 4, MemoryGB: 10, Rack: 1, Pod: 1}
	vms := []VM{
		{Created: 0, Deleted: 3000, Cores: 2, MemoryGB: 2},
		{Created: 600, Deleted: 1200, Cores: 2, MemoryGB: 2},   // placed on the first server, which has the fewest free cores
		{Created: 900, Deleted: 3000, Cores: 3, MemoryGB: 1},   // does not fit on the first server
		{Created: 1000, Deleted: 3000, Cores: 4, MemoryGB: 1},  // refused: too few cores are free
		{Created: 2400, Deleted: 3000, Cores: 1, MemoryGB: 11}, // refused: no server has that much memory
	}
	r, err := Simulate(vms, cluster, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Placed != 3 || r.Refused != 2 {
		t.Errorf("%d placed, %d refused", r.Placed, r.Refused)
	}
	if want := []float64{600}; !reflect.DeepEqual(r.Events, want) {
		t.Errorf("stranded for %v s, want %v", r.Events, want)
	}
	// Samples are taken every 300 s, before changes at that time: at 900 and 1200.
	want := []float64{0, 0, 0, 0.3, 0.3, 0, 0, 0, 0}
	if !near(r.Stranded, want) {
		t.Errorf("stranded %v, want %v", r.Stranded, want)
	}
	if want := []float64{1, 0.9, 0.9, 0.8, 0.75, 0.85, 0.85, 0.85, 0.85}; !near(r.Unallocated, want) {
		t.Errorf("unallocated %v, want %v", r.Unallocated, want)
	}
	// The second server has no stranded memory within one switch, and all of it within five.
	if a, b := r.Reach[0], r.Reach[1]; math.Abs(a[0]-12.0/9) > 1e-9 || b[0] != 0 || b[1] != 0 || math.Abs(b[2]-12.0/9) > 1e-9 {
		t.Errorf("reach %v and %v", a, b)
	}
}

func near(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-9 {
			return false
		}
	}
	return true
}

// A generated trace keeps a cluster busy, with some memory stranded. A trace that is written
// and read is unchanged. The same seed gives the same trace.
func TestGenerate(t *testing.T) {
	cluster := DefaultCluster(50)
	vms := Generate(7, 8000, cluster)
	if !reflect.DeepEqual(vms, Generate(7, 8000, cluster)) || reflect.DeepEqual(vms, Generate(8, 8000, cluster)) {
		t.Error("a seed does not make a trace")
	}
	var text bytes.Buffer
	if err := Write(&text, vms); err != nil {
		t.Fatal(err)
	}
	if line, _, _ := strings.Cut(text.String(), "\n"); !strings.Contains(line, "synthetic") {
		t.Errorf("%q does not say that it is synthetic", line)
	}
	again, err := Read(&text)
	if err != nil || !reflect.DeepEqual(again, vms) {
		t.Fatalf("%d VMs written, %d read: %v", len(vms), len(again), err)
	}
	r, err := Simulate(vms, cluster, 0.3)
	if err != nil {
		t.Fatal(err)
	}
	if r.Cores < 0.6 || r.Cores > 1 || len(r.Events) == 0 || r.Refused > len(vms)/4 {
		t.Errorf("%.2f of the cores in use, %d events, %d of %d refused", r.Cores, len(r.Events), r.Refused, len(vms))
	}
}

// Read accepts a header line and the buckets of the data set's second version.
func TestRead(t *testing.T) {
	vms, err := Read(strings.NewReader("vmid,s,d,created,deleted,max,avg,p95,category,cores,memory\n" +
		"a,b,c,0,300,99.1,2.0,50.0,Unknown,>24,>64\nd,e,f,300,2591700,1,1,1,Interactive,2,3.5\n"))
	want := []VM{{0, 300, manyCores, muchMemory}, {300, 2591700, 2, 3.5}}
	if err != nil || !reflect.DeepEqual(vms, want) {
		t.Errorf("%v, %v", vms, err)
	}
	for _, bad := range []string{
		"", "a,b,c\n", "a,,,0,1,,,,,2,4\nb,,,5,4,,,,,2,4\n", "a,,,0,1,,,,,2,4\nb,,,0,4,,,,,0,4\n",
		"a,,,0,1,,,,,2,4\nb,,,0,4,,,,,2,NaN\n", "a,,,0,1,,,,,2,4\nb,,,-1,4,,,,,2,4\n", "a,,,0,1,,,,,2,4\nb,,,x,4,,,,,2,4\n",
	} {
		if vms, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, vms)
		}
	}
	if _, err := Simulate(want, Cluster{}, 0); err == nil {
		t.Error("a cluster of nothing")
	}
}
