//go:build !race

package resp

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/magiconair/properties"
	ycsbclient "github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	_ "github.com/pingcap/go-ycsb/pkg/workload" // registers the core workload
	"github.com/pingcap/go-ycsb/pkg/ycsb"

	_ "github.com/pingcap/go-ycsb/db/redis" // registers the binding
)

// noting is a DB that records errors.
type noting struct {
	ycsb.DB
	calls atomic.Int64
	err   atomic.Pointer[error]
}

func (n *noting) note(err error) error {
	n.calls.Add(1)
	if err != nil {
		n.err.CompareAndSwap(nil, &err)
	}
	return err
}

func (n *noting) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	values, err := n.DB.Read(ctx, table, key, fields)
	if err == nil && len(values) == 0 {
		err = fmt.Errorf("key %s is not there", key)
	}
	return values, n.note(err)
}

func (n *noting) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	return n.note(n.DB.Update(ctx, table, key, values))
}

func (n *noting) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	return n.note(n.DB.Insert(ctx, table, key, values))
}

// TestGoYCSB runs go-ycsb's workloads with its redis binding, on hashes and on strings. The
// binding has no scans, so E is reduced to inserts, as in D. Not under the race detector:
// go-ycsb has races.
func TestGoYCSB(t *testing.T) {
	const records, operations = 500, 2000
	mixes := map[string]map[string]string{
		"A": {"readproportion": "0.5", "updateproportion": "0.5"},
		"B": {"readproportion": "0.95", "updateproportion": "0.05"},
		"C": {"readproportion": "1", "updateproportion": "0"},
		"D": {"readproportion": "0.95", "updateproportion": "0", "insertproportion": "0.05", "requestdistribution": "latest"},
		"F": {"readproportion": "0.5", "updateproportion": "0", "readmodifywriteproportion": "0.5"},
	}
	_, addr := start(t, inMemory(), Options{})
	for _, datatype := range []string{"hash", "string"} {
		for name, mix := range mixes {
			t.Run(datatype+"/"+name, func(t *testing.T) {
				for _, load := range []bool{true, false} {
					p := properties.LoadMap(map[string]string{
						"redis.addr": addr, "redis.datatype": datatype, "dropdata": fmt.Sprint(load),
						"recordcount": fmt.Sprint(records), "operationcount": fmt.Sprint(operations), "threadcount": "4",
						"workload": "core", "dotransactions": fmt.Sprint(!load), "requestdistribution": "uniform", "silence": "true",
						"measurementtype": "raw", "measurement.output_file": t.TempDir() + "/out",
					})
					p.Merge(properties.LoadMap(mix))
					runYCSB(t, p, map[bool]int64{true: records, false: operations}[load])
				}
			})
		}
	}
}

func runYCSB(t *testing.T, p *properties.Properties, least int64) {
	t.Helper()
	db, err := ycsb.GetDBCreator("redis").Create(p)
	if err != nil {
		t.Fatal(err)
	}
	measurement.InitMeasure(p)
	workload, err := ycsb.GetWorkloadCreator("core").Create(p)
	if err != nil {
		t.Fatal(err)
	}
	n := &noting{DB: db}
	ycsbclient.NewClient(p, workload, ycsbclient.DbWrapper{DB: n}).Run(context.Background())
	if err := n.err.Load(); err != nil {
		t.Error(*err)
	}
	if got := n.calls.Load(); got < least {
		t.Errorf("%d calls, want %d", got, least)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := workload.Close(); err != nil {
		t.Error(err)
	}
}
