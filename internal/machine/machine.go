// Package machine describes the machine and the program: processor, kernel, revision, race
// detector, and the processor time that the process and its threads have used.
package machine

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// Processor returns the processor's name.
func Processor() string {
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

// Kernel returns the kernel's release.
func Kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown kernel"
	}
	return strings.TrimSpace(string(release))
}

// Revision returns the revision of the source that the program was built from, with a +
// if the source was modified.
func Revision() string {
	revision, changed := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+"
			}
		}
	}
	return revision + changed
}

// Describe describes the machine in one line, for the head of a report.
func Describe() string {
	memory := "unknown memory"
	if total := mem.Total(); total > 0 {
		memory = units.Size(total).String() + " memory"
	}
	return fmt.Sprintf("%s, %d CPUs, %s, %s/%s, %s", Processor(), runtime.NumCPU(), memory,
		runtime.GOOS, runtime.GOARCH, runtime.Version())
}
