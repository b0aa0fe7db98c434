package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/bench"
)

// fio measures a file with fio.
type fio struct {
	path    string // of the executable
	version string
	file    string
	sector  int // unit of direct I/O on it; 1: through the page cache, as the device
	size    int64
	remake  bool  // make the file again before each slice, with space that was never written
	fast    *fast // nil: fio's defaults
}

// findFio looks for the program; nil if it is not installed.
func findFio(ctx context.Context) (*fio, error) {
	path, err := exec.LookPath("fio")
	if err != nil {
		return nil, nil //nolint:nilerr // not installed
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("fio --version: %w", err)
	}
	return &fio{path: path, version: strings.TrimSpace(string(version))}, nil
}

// way describes its way of I/O.
func (f *fio) way() string {
	if f.sector > 1 {
		return "direct"
	}
	return "through the page cache"
}

// name names fio with its options, for a number in flight.
func (f *fio) name(depth int) string {
	if f.fast == nil {
		return "fio with its defaults"
	}
	return fmt.Sprintf("fast fio in batches of %d with %s", f.fast.batch(depth), f.fast.pages.way)
}

// errNoMemory means that fio had no memory for its buffers, such as huge pages that others took
// meanwhile.
var errNoMemory = errors.New("it has no memory")

// errNothing means that fio completed no operation: the slice was too short.
var errNothing = errors.New("fio's report: nothing was done")

// slice measures one cell for that long, or longer if no operation completes.
func (f *fio) slice(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error) {
	const tries = 5
	for n := 1; ; n++ {
		s, err := f.measure(ctx, x, lasts)
		if errors.Is(err, errNoMemory) && f.fast != nil && f.fast.pages.fallBack() {
			n--
			continue
		}
		if n == tries || !errors.Is(err, errNothing) {
			return s, err
		}
		lasts *= 4
	}
}

func (f *fio) measure(ctx context.Context, x cell, lasts time.Duration) (bench.Sample, error) {
	if f.remake {
		if err := allocate(f.file, f.size); err != nil {
			return bench.Sample{}, err
		}
	}
	args := []string{
		"--name=redykv", "--filename=" + f.file, fmt.Sprintf("--size=%d", f.size), fmt.Sprintf("--bs=%d", f.block(x)),
		fmt.Sprintf("--iodepth=%d", x.Depth), "--ioengine=io_uring", "--thread",
		fmt.Sprintf("--runtime=%dms", max(lasts.Milliseconds(), 1)), "--time_based", "--output-format=json",
	}
	if f.sector > 1 {
		args = append(args, "--direct=1")
	}
	if f.fast != nil {
		args = append(args, f.fast.args(x, f.block(x))...)
	}
	if !x.Op.writes() {
		args = append(args, "--rw=randread", "--norandommap", "--randrepeat=0", "--readonly")
	} else {
		args = append(args, "--rw=write")
	}
	cmd := exec.CommandContext(ctx, f.path, args...)
	if f.fast != nil {
		cmd.Env = append(os.Environ(), f.fast.pages.env...)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		// fio says on standard output, before its report, what its threads met.
		said, _, _ := strings.Cut(string(out), "{")
		said = strings.TrimSpace(said + stderr.String())
		if strings.Contains(said, "Cannot allocate memory") {
			err = fmt.Errorf("%w: %w", errNoMemory, err)
		}
		return bench.Sample{}, fmt.Errorf("fio %s of %d bytes: %w: %s", x.Op, x.Size, err, said)
	}
	return parseFio(out, x)
}

// block returns the size of fio's operations: whole sectors, as the device reads, and for a
// record of a store the blocks that hold it.
func (f *fio) block(x cell) int {
	unit := f.sector
	if x.Op == Store {
		unit = memoryAlign
	}
	return (x.Size + unit - 1) / unit * unit
}

// fioStats has the needed statistics of one direction.
type fioStats struct {
	IOPS    float64 `json:"iops"`
	IOs     uint64  `json:"total_ios"`
	Runtime float64 `json:"runtime"` // in ms
}

// parseFio returns the sample in fio's report.
func parseFio(out []byte, x cell) (bench.Sample, error) {
	var report struct {
		Jobs []struct {
			Read  fioStats `json:"read"`
			Write fioStats `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return bench.Sample{}, fmt.Errorf("fio's report: %w", err)
	}
	if len(report.Jobs) != 1 {
		return bench.Sample{}, fmt.Errorf("fio's report has %d jobs, want 1", len(report.Jobs))
	}
	s := report.Jobs[0].Read
	if x.Op.writes() {
		s = report.Jobs[0].Write
	}
	if s.IOs == 0 || s.IOPS <= 0 {
		return bench.Sample{}, errNothing
	}
	return bench.Sample{Operations: s.IOs, Seconds: s.Runtime / 1e3, Mops: s.IOPS / 1e6, InFlight: x.Depth}, nil
}

// spread makes a file of a size with written blocks.
func spread(path string, size int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("devicebench: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	chunk := make([]byte, fillBlock)
	for i := range chunk {
		chunk[i] = byte(i * i >> 3)
	}
	for at := int64(0); at < size; at += fillBlock {
		if _, err := f.WriteAt(chunk[:min(fillBlock, size-at)], at); err != nil {
			return fmt.Errorf("devicebench: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("devicebench: %w", err)
	}
	return nil
}
