// Package machine says what kind of machine this is, for the heads of reports and the
// provenance of models, and what processor time its processes and threads have had.
package machine

import (
	"bufio"
	"os"
	"runtime/debug"
	"strings"
)

// Processor is the processor's name as the kernel tells it.
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

// Kernel is the kernel's release.
func Kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown kernel"
	}
	return strings.TrimSpace(string(release))
}

// Revision is the revision of the source that this program was built from, with a +
// after it where that was changed.
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
