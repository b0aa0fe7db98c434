package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/bench"
	devicebench "github.com/redykv/redykv/internal/bench/device"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ssdtier"
	"github.com/redykv/redykv/ycsb"
)

// benchDeviceFlags are the flags of bench device.
type benchDeviceFlags struct {
	spec        devicebench.Spec
	ops, blocks []string
	engine      string
	verify      string
	size        units.Size
	dir         string
	jsonPath    string
}

func newBenchDeviceCmd() *cobra.Command {
	f := benchDeviceFlags{size: 1 << 30}
	cmd := &cobra.Command{
		Use:   "device",
		Short: "Measure a device, compared with fio",
		Long: `Reads and writes a device through one queue, owned by one goroutine: each operation
with each block size and each number in flight, alternately. Operations:

  read   reads random blocks of a log of --size
  write  appends blocks to a log, which is truncated meanwhile and reuses the files
         that become free
  grow   appends blocks to new files
  store  reads random records of --block bytes from a store on the device, whose log
         is --size and 16 times its memory; reads from memory do not count

Devices:

  ssd     segment files in --dir, bypassing the page cache, with checksums; blocks are
          at least 4 KiB
  smb     files on a Samba server of this machine, over loopback, its share in memory
  redy    a Redy cache; its server is another process on this machine
  memory  the memory of this process

If fio is installed, it is measured alternately with the ssd, twice: with its defaults,
and as fast as it goes, with a registered file and, where the system permits them,
registered buffers and huge pages, in batches of all operations in flight and of a
quarter of them, of which the faster one counts. Ratios are to the better of the two:
the median of the slices' ratios. Both bypass the page cache, and use io_uring. For read
it reads whole sectors of the same file, for store the blocks of 4 KiB that hold a
record. For write it overwrites a file of --size, for grow a new file for each slice.

The device's buffers are huge pages. fio's come from the reserve (vm.nr_hugepages), or on
demand, which root permits for the time of the measurement (nr_overcommit_hugepages), or
are transparent ones; the report says which.

Figures are those of the slice with the median throughput, of the device and of fio each.
The mean latency is the number in flight over the throughput, for all; percentiles are
of a sample. CPU us is the processor time of this process for one operation.`,
		Example: `  redykv bench device --block 4KiB --depth 1,32,128
  redykv bench device --block 512 --verify blocks
  redykv bench device --op write,grow --block 64KiB,1MiB --depth 1,32 --dir /mnt/nvme
  redykv bench device --op read,store --depth 32,128
  redykv bench device --engine pool --no-fio`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Device, "device", "ssd", "device: "+strings.Join(devicebench.Devices(), ", "))
	flags.StringSliceVar(&f.ops, "op", []string{"read"}, "operations: "+bench.Names(devicebench.Ops))
	flags.StringSliceVar(&f.blocks, "block", []string{"4KiB"}, "block sizes")
	flags.IntSliceVar(&f.spec.Depths, "depth", []int{1, 32, 128}, "operations in flight")
	flags.IntVar(&f.spec.Batch, "batch", 0, "maximum number of completions polled before the next operations start (fio: 1); 0: 1 for reads, no limit for writes")
	flags.DurationVar(&f.spec.Duration, "duration", 3*time.Second, "time of each measurement, all slices together")
	flags.Var(&f.size, "size", "size of the log")
	flags.StringVar(&f.dir, "dir", "", "directory for files, which are removed afterwards (default: the directory for temporary files)")
	flags.StringVar(&f.engine, "engine", string(ssdtier.EngineAuto), fmt.Sprintf("I/O engine of the ssd: %v", ssdtier.Engines))
	flags.StringVar(&f.verify, "verify", string(ssdtier.VerifyAll), fmt.Sprintf("which reads of the ssd are verified by checksums: %v; blocks: only whole blocks of 4 KiB, smaller reads fetch single sectors", ssdtier.Verifies))
	flags.StringVar(&f.spec.Net, "net", "none", "model of the network to redy: "+fabric.ModelUsage)
	flags.BoolVar(&f.spec.NoFio, "no-fio", false, "do not measure fio")
	flags.StringVar(&f.jsonPath, "json", "", "`file` to write the results to, as JSON lines")
	return cmd
}

// parse sets the spec from the flags.
func (f *benchDeviceFlags) parse() (err error) {
	s := &f.spec
	for _, name := range f.ops {
		s.Ops = append(s.Ops, devicebench.Op(name))
	}
	if s.Blocks, err = units.ParseSizes(f.blocks); err != nil {
		return err
	}
	s.Size, s.Engine, s.Verify = int64(f.size), ssdtier.Engine(f.engine), ssdtier.Verify(f.verify)
	return s.Check()
}

func (f *benchDeviceFlags) run(cmd *cobra.Command) (err error) {
	if err := f.parse(); err != nil {
		return usageError{err}
	}
	work, err := makeWorkDir(f.dir, "redykv-bench-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.remove()) }()
	f.spec.Dir = work.dir.Path
	return runMeasurement(cmd, f.jsonPath, func(p ycsb.Progress) (measurement, error) {
		return devicebench.Run(cmd.Context(), f.spec, p)
	})
}
