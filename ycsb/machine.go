package ycsb

import (
	"fmt"
	"runtime"

	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// Machine describes this machine in one line, for the head of a report.
func Machine() string {
	memory := "unknown memory"
	if total := mem.Total(); total > 0 {
		memory = units.Size(total).String() + " memory"
	}
	return fmt.Sprintf("%s, %d CPUs, %s, %s/%s, %s", machine.Processor(), runtime.NumCPU(), memory,
		runtime.GOOS, runtime.GOARCH, runtime.Version())
}
