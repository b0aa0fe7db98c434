package ycsb

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// Machine describes this machine in one line, for the head of a report.
func Machine() string {
	memory := "unknown memory"
	if total := mem.Total(); total > 0 {
		memory = units.Size(total).String() + " memory"
	}
	return fmt.Sprintf("%s, %d CPUs, %s, %s/%s, %s", processor(), runtime.NumCPU(), memory,
		runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// processor is the processor's name as the kernel tells it.
func processor() string {
	const unknown = "unknown processor"
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), ":")
		if found && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}
