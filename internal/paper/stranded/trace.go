package stranded

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// VM is one line of a trace.
type VM struct {
	Created, Deleted float64 // seconds from the trace's beginning
	Cores            int
	MemoryGB         float64
}

// Columns of the schema that are used.
const (
	columnID      = 0
	columnCreated = 3
	columnDeleted = 4
	columnCores   = 9
	columnMemory  = 10
	columns       = 11
)

// Numbers used for the open-ended buckets of the schema's second version.
const (
	manyCores  = 32  // ">24"
	muchMemory = 128 // ">64"
)

// Limits of values in a trace.
const (
	maxCores    = 1 << 12
	maxMemoryGB = 1 << 20
	maxSeconds  = 1 << 40
)

// Read reads a trace: lines of VM id, subscription id, deployment id, seconds of creation and
// deletion, maximum, average and 95th percentile of processor use, category, cores, memory in
// GB. A header line is skipped. The last two columns may be buckets, such as >24.
func Read(r io.Reader) ([]VM, error) {
	in := csv.NewReader(bufio.NewReader(r))
	in.FieldsPerRecord = columns
	in.ReuseRecord = true
	var vms []VM
	for line := 1; ; line++ {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("trace of VMs: %w", err)
		}
		vm, err := parse(record)
		switch {
		case err != nil && line == 1:
			continue
		case err != nil:
			return nil, fmt.Errorf("trace of VMs: line %d, VM %.40q: %w", line, record[columnID], err)
		}
		vms = append(vms, vm)
	}
	if len(vms) == 0 {
		return nil, errors.New("trace of VMs: there are none")
	}
	return vms, nil
}

func parse(record []string) (vm VM, err error) {
	if vm.Created, err = number(record[columnCreated], 0, maxSeconds); err != nil {
		return vm, fmt.Errorf("created: %w", err)
	}
	if vm.Deleted, err = number(record[columnDeleted], vm.Created, maxSeconds); err != nil {
		return vm, fmt.Errorf("deleted: %w", err)
	}
	cores, err := bucket(record[columnCores], manyCores, 1, maxCores)
	if err != nil {
		return vm, fmt.Errorf("cores: %w", err)
	}
	vm.Cores = int(cores)
	if vm.MemoryGB, err = bucket(record[columnMemory], muchMemory, 0, maxMemoryGB); err != nil {
		return vm, fmt.Errorf("memory: %w", err)
	}
	return vm, nil
}

func bucket(text string, open, least, most float64) (float64, error) {
	if strings.HasPrefix(strings.TrimSpace(text), ">") {
		return open, nil
	}
	return number(text, least, most)
}

func number(text string, least, most float64) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no number", text)
	}
	if !(v >= least && v <= most) {
		return 0, fmt.Errorf("%g: want %g to %g", v, least, most)
	}
	return v, nil
}

// Write writes a trace in the schema that Read reads. Unknown columns are empty, and the
// category marks the trace as synthetic.
func Write(w io.Writer, vms []VM) error {
	out := csv.NewWriter(w)
	for i, vm := range vms {
		err := out.Write([]string{
			"synthetic-" + strconv.Itoa(i), "", "", strconv.FormatFloat(vm.Created, 'f', 0, 64), strconv.FormatFloat(vm.Deleted, 'f', 0, 64),
			"", "", "", "synthetic", strconv.Itoa(vm.Cores), strconv.FormatFloat(vm.MemoryGB, 'g', -1, 64),
		})
		if err != nil {
			return fmt.Errorf("trace of VMs: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("trace of VMs: %w", err)
	}
	return nil
}
