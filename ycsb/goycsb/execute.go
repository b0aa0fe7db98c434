package goycsb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	_ "github.com/pingcap/go-ycsb/pkg/workload" // registers the core workload
	goycsb "github.com/pingcap/go-ycsb/pkg/ycsb"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// Phase is a phase of a workload.
type Phase string

const (
	// PhaseLoad inserts the workload's records.
	PhaseLoad Phase = "load"
	// PhaseRun does the workload's operations on records loaded before.
	PhaseRun Phase = "run"
)

// ErrProperties is the error of bad properties. Nothing was started.
var ErrProperties = errors.New("bad properties")

// Execute loads or runs a workload on the store in the directory that the properties name, and
// prints what go-ycsb's own command prints, to os.Stdout. Operations that failed are an error, after
// that output. maxexecutiontime and ctx can end a
// phase early. A process can run only one Execute at a time: go-ycsb measures in global
// variables.
func Execute(ctx context.Context, p *properties.Properties, phase Phase) (err error) {
	settings, err := readSettings(p, phase == PhaseLoad)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProperties, err)
	}
	// The client and the workload read these from the properties only.
	for name, value := range map[string]string{
		prop.DoTransactions: fmt.Sprint(phase == PhaseRun),
		prop.Command:        string(phase),
	} {
		if _, _, err := p.Set(name, value); err != nil {
			return fmt.Errorf("property %s: %w", name, err)
		}
	}
	db, err := open(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	printProperties(p)
	measurement.InitMeasure(p)
	workload, err := newWorkload(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, workload.Close()) }()

	running, cancel := ctx, context.CancelFunc(func() {})
	if settings.seconds > 0 {
		running, cancel = context.WithTimeout(ctx, time.Duration(settings.seconds)*time.Second)
	}
	defer cancel()
	start := time.Now()
	client.NewClient(p, workload, client.DbWrapper{DB: db}).Run(running)
	fmt.Println(rule)
	fmt.Printf("Run finished, takes %s\n", time.Since(start))
	if own, ok := workload.(*native); ok {
		return errors.Join(own.report(), ctx.Err())
	}
	return errors.Join(output(), db.Err(), ctx.Err())
}

// newWorkload returns the workload of the properties.
//
// go-ycsb's core workload draws zipfian records from insertstart to insertstart + insertcount + twice
// the expected inserts, both included: the last one never exists, and others do not exist yet. YCSB
// draws again until the record exists. Here the workload gets an insertcount of one less and no
// operationcount, which it uses for nothing else, so that it draws from the records that were loaded.
func newWorkload(p *properties.Properties) (goycsb.Workload, error) {
	name := p.GetString(prop.Workload, "core")
	if name != WorkloadNative && p.GetString(prop.RequestDistribution, prop.RequestDistributionDefault) == "zipfian" {
		count := p.GetInt64(prop.InsertCount, p.GetInt64(prop.RecordCount, 0)-p.GetInt64(prop.InsertStart, 0))
		p = properties.LoadMap(p.Map())
		p.DisableExpansion = true
		for name, value := range map[string]int64{prop.InsertCount: count - 1, prop.OperationCount: 0} {
			if _, _, err := p.Set(name, strconv.FormatInt(value, 10)); err != nil {
				return nil, fmt.Errorf("property %s: %w", name, err)
			}
		}
	}
	w, err := goycsb.GetWorkloadCreator(name).Create(p)
	if err != nil {
		return nil, fmt.Errorf("go-ycsb: %w", err)
	}
	return w, nil
}

// output prints the measurements. It returns an error where go-ycsb panics: if it cannot write
// to the file that the properties name.
func output() (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("go-ycsb: %v", why)
		}
	}()
	measurement.Output()
	return nil
}

const rule = "**********************************************"

// printProperties prints the properties in go-ycsb's form, sorted.
func printProperties(p *properties.Properties) {
	fmt.Println("***************** properties *****************")
	for _, name := range slices.Sorted(slices.Values(p.Keys())) {
		fmt.Printf("%q=%q\n", name, p.GetString(name, ""))
	}
	fmt.Println(rule)
}

// storage is a DB with its device.
type storage struct {
	*DB
	*ycsb.Storage
}

// Close closes the DB, and with it the device, then releases the storage.
func (s *storage) Close() error { return errors.Join(s.DB.Close(), s.Release()) }

// open opens the store described by settings.
func open(ctx context.Context, settings settings) (*storage, error) {
	opened, err := ycsb.OpenStorage(ctx, settings.device, settings.shape, settings.dir)
	if err != nil {
		return nil, err
	}
	store, err := kv.Open(kv.Options{
		Device: opened.Device, Memory: settings.shape.Memory, Records: settings.shape.Records,
		Compaction: kv.AutoCompaction{DeadShare: kv.DefaultCompactDead},
	})
	if err != nil {
		err = fmt.Errorf("directory %s: %w", settings.dir, err)
		return nil, errors.Join(err, opened.Device.Close(), opened.Release())
	}
	db := &storage{DB: NewDB(store), Storage: opened}
	if err := db.order(opened.Device, settings.scan); err != nil {
		return nil, errors.Join(fmt.Errorf("directory %s: %w", settings.dir, err), db.Close())
	}
	return db, nil
}

// keysMeta is the name of the device's metadata that holds the ordered keys.
const keysMeta = "ycsb.keys"

// order reads the ordered set of keys from the device. Without one it makes a new set if scan
// is set and the store is empty. An existing set is kept up to date even without scans: an
// incomplete set would be worse than none.
func (db *DB) order(dev device.Device, scan bool) error {
	data, err := dev.ReadMeta(keysMeta)
	switch {
	case err == nil:
		if db.keys, err = decodeKeySet(data); err != nil {
			return err
		}
	case !errors.Is(err, device.ErrNoMeta):
		return fmt.Errorf("ordered keys: %w", err)
	case !scan:
		return nil
	default:
		if m := db.store.Metrics(); m.Log.Tail != m.Log.Begin {
			return fmt.Errorf("%w: the store has records that were loaded without %s=true", ErrNoScan, PropScan)
		}
		db.keys = newKeySet()
	}
	db.save = func(ordered []byte) error { return dev.WriteMeta(keysMeta, ordered) }
	return nil
}
