package main

import (
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
	redy        string
	cache       units.Size
	transport   string
	duration    time.Duration
	region      string
	refillRate  units.Size
	commitPoint string
	bucket      string
	bucketEvery time.Duration
	blockCache  units.Size
	tls         tlsFlags
	access      accessFlags
}

func newStorageFlags() storageFlags {
	return storageFlags{verify: string(ssdtier.VerifyAll), recycle: ssdtier.DefaultRecycle, memory: 1 << 30, cache: 1 << 30, refillRate: device.DefaultRefillRate}
}

func (f *storageFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kind, "storage", storageSSD, "where the log is: ssd, in --dir; memory, all of it, where nothing survives the server")
	flags.StringVar(&f.dir, "dir", "data", "directory of the store on the SSD; made if it is not there")
	flags.StringVar(&f.verify, "verify", f.verify, fmt.Sprintf("which reads of the SSD are compared with checksums: %v; blocks: those that have a whole block of 4 KiB in them, other records are read as they are, with no more than the sectors around them", ssdtier.Verifies))
	flags.IntVar(&f.recycle, "recycle", f.recycle, "segments of 1 GiB at most that are kept when they hold nothing any more, until something needs their space: to write over one is faster than to make one; 0: none")
	flags.Var(&f.memory, "memory", "log kept in local memory; the index comes beside it")
	flags.Int64Var(&f.records, "records", 1_000_000, "keys to expect: the index begins with room for them, and grows")
	flags.Float64Var(&f.readCache, "read-cache", 0, "share of --memory, 0 to less than 1, for records that reads fetch again and again")
	flags.StringVar(&f.redy, "redy", redyNone, "remote memory above the SSD: none, embedded, or a manager's address")
	flags.Var(&f.cache, "cache", "size of the remote memory")
	flags.StringVar(&f.transport, "transport", "", "how remote memory is reached: "+strings.Join(transport.BetweenProcesses(), ", ")+" (default shm, or as the manager has it)")
	flags.DurationVar(&f.duration, "cache-duration", 0, "how long the remote memory is likely to be needed: a manager may use spot VMs then, which are cheaper and may be taken back; 0: until the server ends, at full price")
	flags.StringVar(&f.region, "cloud-region", "", "where this machine is: of which region of the cloud a manager is to take the VMs (default: the manager's)")
	flags.Var(&f.refillRate, "refill-rate", "bytes a second at most to bring back from the SSD what remote memory lacks, after a start or a loss; 0: none")
	flags.StringVar(&f.commitPoint, "commit-point", commitSSD, "what has to hold a write before it counts as durable: ssd, or redy, the remote memory")
	flags.StringVar(&f.bucket, "bucket", "", "URL of a bucket for a copy of the store, from which an empty --dir is filled: s3://, azblob://, gs:// or file:// (default: none)")
	flags.DurationVar(&f.bucketEvery, "bucket-every", blob.DefaultEvery, "least time from one upload to --bucket to the next: what may be lost with this machine")
	flags.Var(&f.blockCache, "block-cache", "part of --memory for blocks of the SSD that were read; for values of some KiB, or a store that is in --bucket; 0: none")
	f.tls.add(flags)
	f.access.add(flags)
}

// check returns an error for bad flags.
func (f *storageFlags) check() error {
	switch {
	case f.kind != storageSSD && f.kind != storageMemory:
		return usagef("--storage %q: want ssd or memory", f.kind)
	case f.kind == storageMemory && f.redy != redyNone:
		return usagef("--storage memory has all of the log in memory: it takes --redy none")
	case f.kind == storageMemory && (f.bucket != "" || f.blockCache != 0):
		return usagef("--storage memory has no files: it takes neither --bucket nor --block-cache")
	case f.kind == storageMemory && (f.verify != string(ssdtier.VerifyAll) || f.recycle != ssdtier.DefaultRecycle):
		return usagef("--storage memory has no files: it takes neither --verify nor --recycle")
	case !slices.Contains(ssdtier.Verifies, ssdtier.Verify(f.verify)):
		return usagef("--verify %q: want one of %v", f.verify, ssdtier.Verifies)
	case f.recycle < 0:
		return usagef("--recycle %d: want 0 or more", f.recycle)
	case f.bucket != "" && f.commitPoint == commitRedy:
		return usagef("--bucket has copies of what the SSD has: it takes --commit-point ssd")
	case f.bucketEvery <= 0:
		return usagef("--bucket-every %v: want more than nothing", f.bucketEvery)
	case f.blockCache != 0 && (f.blockCache < blockcache.MinCapacity || f.blockCache >= f.memory):
		return usagef("--block-cache %v: want 0, or from %v to less than --memory %v", f.blockCache, units.Size(blockcache.MinCapacity), f.memory)
	case f.memory < 1 || f.records < 1:
		return usagef("--memory %v --records %d: want something", f.memory, f.records)
	case !(f.readCache >= 0 && f.readCache < 1):
		return usagef("--read-cache %g: want 0 to less than 1", f.readCache)
	case f.redy != redyNone && f.cache < redytier.MinRegionSize:
		return usagef("--cache %v: want %v or more", f.cache, units.Size(redytier.MinRegionSize))
	case f.tls != (tlsFlags{}) && (f.redy == redyNone || f.redy == redyEmbedded):
		return usagef("--redy %s --tls-cert: only the connections to a manager's cache servers are encrypted", f.redy)
	case (f.duration != 0 || f.region != "") && (f.redy == redyNone || f.redy == redyEmbedded):
		return usagef("--redy %s: --cache-duration and --cloud-region are for a manager's address", f.redy)
	case f.duration < 0:
		return usagef("--cache-duration %v: want 0 or more", f.duration)
	case f.transport != "" && !slices.Contains(transport.BetweenProcesses(), f.transport):
		return usagef("--transport %q: want one of %s", f.transport, strings.Join(transport.BetweenProcesses(), ", "))
	case f.commitPoint != commitSSD && f.commitPoint != commitRedy:
		return usagef("--commit-point %q: want ssd or redy", f.commitPoint)
	case f.commitPoint == commitRedy && f.redy == redyNone:
		return usagef("--commit-point redy takes --redy")
	}
	shape, on := ycsb.Shape{Records: f.records, Memory: int64(f.memory)}, ycsb.SSD
	switch f.redy {
	case redyNone:
	case redyEmbedded:
		shape.Cache, on = int64(f.cache), ycsb.Redy
	default:
		if err := checkURL("--redy", f.redy); err != nil {
			return err
		}
	}
	if need, have := shape.MemoryOn(on), mem.Total(); have > 0 && need > float64(have) {
		return usagef("--memory, --cache and the index for --records need %v together, and this machine has %v",
			units.Size(min(need, 1<<62)), units.Size(have))
	}
	return nil
}

// open opens the store's files and the remote memory above them. The caller closes the device,
// and then calls release.
func (f *storageFlags) open(ctx context.Context, log *slog.Logger) (dev device.Device, release func() error, err error) {
	release = func() error { return nil }
	if f.kind == storageMemory {
		return device.NewMemory(), release, nil
	}
	ssd, err := f.openSSD(ctx, log)
	if err != nil || f.redy == redyNone {
		return ssd, release, err
	}
	redy, mgr, err := f.openRedy(ctx, log)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--redy %s: %w", f.redy, err), ssd.Close())
	}
	opts := device.TieredOptions{Names: []string{"redy", "ssd"}, RefillRate: f.refill(), Logger: log}
	if f.commitPoint == commitRedy {
		opts.CommitPoint = 1
	}
	return device.NewTieredWith(opts, redy, ssd), mgr.Close, nil
}

// patience is the time after which a waiting command prints why.
const patience = 2 * time.Second

// files returns the options of the SSD's files.
func (f *storageFlags) files(log *slog.Logger) ssdtier.Options {
	opts := ssdtier.Options{Verify: ssdtier.Verify(f.verify), Recycle: f.recycle, Logger: log}
	if f.recycle == 0 {
		opts.Recycle = -1 // 0 would mean the default
	}
	return opts
}

// openSSD opens the files, with the bucket behind them and the cache in front of them if the
// flags ask for these.
func (f *storageFlags) openSSD(ctx context.Context, log *slog.Logger) (dev device.Device, err error) {
	if dev, err = ssdtier.OpenWith(f.dir, f.files(log)); err != nil {
		return nil, err
	}
	if f.bucket != "" {
		with, err := blob.OpenURL(ctx, dev, f.bucket, blob.Options{Every: f.bucketEvery, Logger: log})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--bucket: %w", err), dev.Close())
		}
		dev = with
	}
	if f.blockCache != 0 {
		with, err := blockcache.New(dev, blockcache.Options{Capacity: int64(f.blockCache)})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--block-cache: %w", err), dev.Close())
		}
		dev = with
	}
	return dev, nil
}

// openRedy makes the cache. With an embedded manager, it starts that too, and the manager is
// closed after the cache.
func (f *storageFlags) openRedy(ctx context.Context, log *slog.Logger) (*redytier.Device, io.Closer, error) {
	config := redytier.Config{Capacity: int64(f.cache), Transport: f.transport, Late: true, Logger: log}
	if f.redy == redyEmbedded {
		if config.Transport == "" {
			config.Transport = ycsb.TransportSHM
		}
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
	config.Duration, config.CloudRegion = f.duration, f.region
	defer time.AfterFunc(patience, func() {
		log.Info("still waiting for remote memory", "manager", f.redy, "cache", f.cache.String())
	}).Stop()
	redy, err := redytier.Open(ctx, mgr, config)
	return redy, io.NopCloser(nil), err
}

// refill converts --refill-rate to the devices' option.
func (f *storageFlags) refill() int64 {
	if f.refillRate == 0 {
		return -1
	}
	return int64(f.refillRate)
}
