package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	_ "gocloud.dev/blob/fileblob" // for --bucket; see clouds.go

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/blob"
	"github.com/redykv/redykv/device/blockcache"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/ssdtier"
	"github.com/redykv/redykv/ycsb"
)

// Values of --storage, --redy and --commit-point.
const (
	storageSSD    = "ssd"
	storageMemory = "memory"

	redyNone     = "none"
	redyEmbedded = "embedded"

	commitSSD  = "ssd"
	commitRedy = "redy"
)

// storageFlags are the flags for the device of the served store.
type storageFlags struct {
	kind        string
	dir         string
	verify      string
	recycle     int
	memory      units.Size
	records     int64
	readCache   float64
	sample      bool
	maxData     units.Size
	redy        string
	cache       units.Size
	transport   string
	duration    time.Duration
	linger      time.Duration
	region      string
	machine     string
	refillRate  refillRate
	commitPoint string
	forget      bool
	bucket      string
	bucketEvery time.Duration
	onlyWriter  bool
	blockCache  units.Size
	tls         tlsFlags
	access      accessFlags
}

// refillRate is the value of --refill-rate: bytes a second, or empty for no limit.
type refillRate units.Size

const noRefillLimit refillRate = -1

func (r *refillRate) String() string {
	if *r == noRefillLimit {
		return ""
	}
	return units.Size(*r).String()
}

// Set implements pflag.Value.
func (r *refillRate) Set(text string) error {
	if text == "" {
		*r = noRefillLimit
		return nil
	}
	size, err := units.ParseSize(text)
	if err == nil {
		*r = refillRate(size)
	}
	return err
}

// Type implements pflag.Value.
func (*refillRate) Type() string { return "size" }

func newStorageFlags() storageFlags {
	return storageFlags{
		verify: string(ssdtier.VerifyAll), recycle: ssdtier.DefaultRecycle, memory: 1 << 30, cache: 1 << 30,
		linger: 10 * time.Minute, refillRate: noRefillLimit,
	}
}

func (f *storageFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kind, "storage", storageSSD, "where the log is: ssd, in --dir; or memory: nothing survives the server")
	flags.StringVar(&f.dir, "dir", "data", "directory of the store on the SSD; created if missing")
	flags.StringVar(&f.verify, "verify", f.verify, fmt.Sprintf("which reads of the SSD are verified by checksums: %v; blocks: only whole blocks of 4 KiB, smaller reads fetch single sectors", ssdtier.Verifies))
	flags.IntVar(&f.recycle, "recycle", f.recycle, "empty files of up to 1 GiB that are kept for reuse until their space is needed, as overwriting a file is faster than creating one; 0: none")
	flags.Var(&f.memory, "memory", "memory for the newest part of the log; the index takes additional memory")
	flags.Int64Var(&f.records, "records", 1_000_000, "expected number of keys: initial size of the index, which grows")
	flags.Float64Var(&f.readCache, "read-cache", 0, "share of --memory for a cache of records that are often read, 0 to less than 1")
	flags.BoolVar(&f.sample, "sample-accesses", false, "follow a part of the keys, to predict the hit shares with other sizes of --memory: /mrc at --admin, redykv advise; also CONFIG SET sample-accesses")
	flags.Var(&f.maxData, "max-data", "size of the log from which the keys are evicted that were not used lately, as by Redis's allkeys-lru, at least --memory: the server is a cache; 0: off")
	flags.StringVar(&f.redy, "redy", redyNone, "Redy cache above the SSD: none, embedded, or a manager's address, or those of several, separated by commas")
	flags.Var(&f.cache, "cache", "size of the Redy cache")
	flags.StringVar(&f.transport, "transport", "", "transport of the Redy cache: "+strings.Join(transport.BetweenProcesses(), ", ")+" (default: shm if embedded, otherwise the manager's)")
	flags.DurationVar(&f.duration, "cache-duration", 0, "expected duration of the Redy cache: the manager may then use spot VMs, which are cheaper and may be reclaimed; 0: unlimited, no spot VMs")
	flags.DurationVar(&f.linger, "cache-linger", f.linger, "how long a manager keeps the Redy cache, which is paid for meanwhile, when the server has ended: a server on the same --dir takes it up with what it holds; 0: the cache ends with the server")
	flags.StringVar(&f.machine, "machine", "", "`name` of this machine at the manager's allocator, such as the node of Kubernetes: memory is taken near it")
	flags.StringVar(&f.region, "cloud-region", "", "region of the cloud that the manager takes VMs from (default: the manager's)")
	flags.Var(&f.refillRate, "refill-rate", "maximum bytes a second copied from the SSD to refill the Redy cache after a start or a loss; 0: no refill (default: what reads leave)")
	flags.StringVar(&f.commitPoint, "commit-point", commitSSD, "where a small commit must be to be durable: ssd; or redy: in the Redy cache, without a sync of the SSD, which has it a second later")
	flags.BoolVar(&f.forget, "forget-lost-commits", false, "start without the commits of the last second before a crash, which --commit-point redy had in a Redy cache that is lost")
	flags.StringVar(&f.bucket, "bucket", "", "URL of a bucket for a copy of the store, with which an empty --dir continues: s3://, azblob://, gs:// or file:// (default: none)")
	flags.DurationVar(&f.bucketEvery, "bucket-every", blob.DefaultEvery, "minimum time between two uploads to --bucket; what is not uploaded is lost with this machine")
	flags.BoolVar(&f.onlyWriter, "bucket-only-writer", false, "this machine alone writes to --bucket, which need not support conditional writes (If-None-Match): another server with it is not noticed, and may damage the copy")
	flags.Var(&f.blockCache, "block-cache", "part of --memory for a cache of SSD blocks; for values of some KiB, or for a store in --bucket; 0: none")
	f.tls.add(flags)
	f.access.add(flags)
}

// check returns an error for bad flags.
func (f *storageFlags) check() error {
	switch {
	case f.kind != storageSSD && f.kind != storageMemory:
		return usagef("--storage %q: want ssd or memory", f.kind)
	case !slices.Contains(ssdtier.Verifies, ssdtier.Verify(f.verify)):
		return usagef("--verify %q: want one of %v", f.verify, ssdtier.Verifies)
	case f.recycle < 0:
		return usagef("--recycle %d: want 0 or more", f.recycle)
	case f.bucket != "" && f.commitPoint == commitRedy:
		return usagef("--bucket copies the SSD: it requires --commit-point ssd")
	case f.bucketEvery <= 0:
		return usagef("--bucket-every %v: want more than 0s", f.bucketEvery)
	case f.blockCache != 0 && (f.blockCache < blockcache.MinCapacity || f.blockCache >= f.memory):
		return usagef("--block-cache %v: want 0, or from %v to less than --memory %v", f.blockCache, units.Size(blockcache.MinCapacity), f.memory)
	case f.memory < 1 || f.records < 1:
		return usagef("--memory %v --records %d: want 1 or more of each", f.memory, f.records)
	case f.maxData != 0 && f.maxData < f.memory:
		return usagef("--max-data %v: want 0, or at least --memory %v", f.maxData, f.memory)
	case !(f.readCache >= 0 && f.readCache < 1):
		return usagef("--read-cache %g: want 0 to less than 1", f.readCache)
	case f.redy != redyNone && f.cache < redytier.MinRegionSize:
		return usagef("--cache %v: want %v or more", f.cache, units.Size(redytier.MinRegionSize))
	case f.linger < 0:
		return usagef("--cache-linger %v: want 0 or more", f.linger)
	case f.duration < 0:
		return usagef("--cache-duration %v: want 0 or more", f.duration)
	case f.transport != "" && !slices.Contains(transport.BetweenProcesses(), f.transport):
		return usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.commitPoint != commitSSD && f.commitPoint != commitRedy:
		return usagef("--commit-point %q: want ssd or redy", f.commitPoint)
	case f.commitPoint == commitRedy && f.fromManager() && f.linger == 0:
		return usagef("--commit-point redy requires --cache-linger: after a crash the last commits are in the cache")
	}
	if f.fromManager() {
		if err := checkURLs("--redy", f.redy); err != nil {
			return err
		}
	}
	if need, have := f.mapped(), mem.Total(); have > 0 && need > float64(have) {
		return usagef("--memory, --cache and the index for --records need %v together, and this machine has %v",
			units.Size(min(need, 1<<62)), units.Size(have))
	}
	return nil
}

// fromManager returns whether the Redy cache is that of a manager, which outlives the server.
func (f *storageFlags) fromManager() bool { return f.redy != redyNone && f.redy != redyEmbedded }

// mapped returns an upper estimate of the memory that the store takes outside Go's heap, with an embedded
// cache, in bytes.
func (f *storageFlags) mapped() float64 {
	shape, on := ycsb.Shape{Records: f.records, Memory: int64(f.memory)}, ycsb.SSD
	if f.redy == redyEmbedded {
		shape.Cache, on = int64(f.cache), ycsb.Redy
	}
	return shape.MemoryOn(on)
}

// open opens the store's files and the remote memory above them. bucket is a part of dev, nil without
// one. The caller closes the device, and then calls release.
func (f *storageFlags) open(ctx context.Context, log *slog.Logger) (dev device.Device, bucket *blob.Device, release func() error, err error) {
	release = func() error { return nil }
	if f.kind == storageMemory {
		return device.NewMemory(), nil, release, nil
	}
	files, err := ssdtier.OpenWith(f.dir, f.files(log))
	if err != nil {
		return nil, nil, nil, err
	}
	if files.JournalAway() != "" && !f.forget && !f.fromManager() {
		return nil, nil, nil, errors.Join(f.lacks(files), files.Close())
	}
	var redy *redytier.Device
	if f.redy != redyNone {
		var mgr io.Closer
		if redy, mgr, err = f.openRedy(ctx, files, log); err != nil {
			if errors.Is(err, redytier.ErrNotTakenUp) {
				err = errors.Join(err, f.lacks(files))
			}
			return nil, nil, nil, errors.Join(fmt.Errorf("--redy %s: %w", f.redy, err), files.Close())
		}
		release = mgr.Close
		if f.redy == redyEmbedded && f.commitPoint == commitRedy {
			log.Warn("the embedded Redy cache ends with the server, and with it the commits of the last second: --commit-point redy is for a manager's")
		}
	}
	var ssd device.Device
	if err = f.openJournal(files, redy); err != nil {
		err = errors.Join(err, files.Close())
	} else {
		ssd, bucket, err = f.openSSD(ctx, files, log)
	}
	if err != nil && redy != nil {
		err = errors.Join(err, redy.Close(), release())
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if redy == nil {
		return ssd, bucket, release, nil
	}
	opts := device.TieredOptions{Names: []string{"redy", "ssd"}, RefillRate: f.refillLimit(), Logger: log}
	return device.NewTieredWith(opts, redy, ssd), bucket, release, nil
}

// openJournal fetches the commits that only the cache of before has, and has the cache, or nil, take those
// from now on if the flags ask for it.
func (f *storageFlags) openJournal(files *ssdtier.Device, redy *redytier.Device) error {
	if files.JournalAway() != "" {
		var from ssdtier.Journal // nil: without them
		if !f.forget {
			from = redy.Journal()
		}
		if err := files.FetchJournal(from); err != nil {
			return errors.Join(err, f.lacks(files))
		}
	}
	if f.commitPoint != commitRedy {
		return nil
	}
	return files.UseJournal(redy.Journal())
}

// lacks is the error of a directory whose last commits are in a cache that is not there.
func (f *storageFlags) lacks(files *ssdtier.Device) error {
	return fmt.Errorf("--dir %s: the commits of the last second are in %s only: start with --redy, --cache and --cache-linger as before, or, if that is lost, once with --forget-lost-commits",
		f.dir, files.JournalAway())
}

// refillLimit returns device.TieredOptions.RefillRate, whose 0 is no limit.
func (f *storageFlags) refillLimit() int64 {
	switch f.refillRate {
	case noRefillLimit:
		return 0
	case 0:
		return -1
	}
	return int64(f.refillRate)
}

// waitNotice is the time after which a waiting command prints why.
const waitNotice = 2 * time.Second

// files returns the options of the SSD's files.
func (f *storageFlags) files(log *slog.Logger) ssdtier.Options {
	return ssdtier.Options{Verify: ssdtier.Verify(f.verify), Recycle: cmp.Or(f.recycle, -1), Logger: log}
}

// openSSD returns the device of files, with the bucket behind them and the cache in front of them, if the
// flags ask for these. After an error they are closed.
func (f *storageFlags) openSSD(ctx context.Context, files *ssdtier.Device, log *slog.Logger) (dev device.Device, bucket *blob.Device, err error) {
	dev = files
	if f.bucket != "" {
		bucket, err = blob.OpenURL(ctx, dev, f.bucket, blob.Options{Every: f.bucketEvery, OnlyWriter: f.onlyWriter, Logger: log})
		if err != nil {
			if errors.Is(err, blob.ErrUnconditional) {
				err = fmt.Errorf("%w; if this machine is the only one that uses the bucket, add --bucket-only-writer", err)
			}
			return nil, nil, errors.Join(fmt.Errorf("--bucket: %w", err), dev.Close())
		}
		dev = bucket
	}
	if f.blockCache != 0 {
		with, err := blockcache.New(dev, blockcache.Options{Capacity: int64(f.blockCache)})
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("--block-cache: %w", err), dev.Close())
		}
		dev = with
	}
	return dev, bucket, nil
}

// openRedy makes the cache, or takes up the one that the files' last server has left. With an
// embedded manager, it starts that too, and the manager is closed after the cache.
func (f *storageFlags) openRedy(ctx context.Context, files *ssdtier.Device, log *slog.Logger) (*redytier.Device, io.Closer, error) {
	config := redytier.Config{Capacity: int64(f.cache), Transport: f.transport, Late: true, Journal: f.commitPoint == commitRedy, Logger: log}
	if f.redy == redyEmbedded {
		config.Transport = cmp.Or(config.Transport, ycsb.TransportSHM)
		allocator, err := allocator.NewLocal(allocator.LocalOptions{Transport: config.Transport, Logger: log})
		if err != nil {
			return nil, nil, err
		}
		mgr, err := manager.Embed(ctx, manager.EmbedOptions{Allocator: allocator, Logger: log})
		if err != nil {
			return nil, nil, err
		}
		redy, err := redytier.Open(ctx, mgr, config)
		if err != nil {
			return nil, nil, errors.Join(err, mgr.Close())
		}
		return redy, mgr, nil
	}
	mgr, err := f.access.dial(f.redy)
	if err != nil {
		return nil, nil, err
	}
	if config.FabricTLS, err = f.tls.config(); err != nil {
		return nil, nil, err
	}
	config.Duration, config.CloudRegion, config.Machine = f.duration, f.region, f.machine
	config.Companion, config.Linger = files, f.linger
	if files.JournalAway() != "" && !f.forget {
		config.Journal, config.MustTakeUp = true, true
	}
	defer time.AfterFunc(waitNotice, func() {
		log.Info("still waiting for remote memory", "manager", f.redy, "cache", f.cache.String())
	}).Stop()
	redy, err := redytier.Open(ctx, mgr, config)
	return redy, io.NopCloser(nil), err
}
