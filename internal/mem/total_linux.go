package mem

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Total is the machine's memory in bytes, or 0 where it is not known.
func Total() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// Resident is the physical memory of this process in bytes, or 0 where it is not
// known.
func Resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var virtual, resident int64 // in pages
	if _, err := fmt.Sscan(string(text), &virtual, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// Available is how much memory can be had without pressing others for theirs, in
// bytes, or 0 where it is not known.
func Available() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	const name = "\nMemAvailable:"
	_, after, _ := strings.Cut(string(text), name)
	var kilobytes int64
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}
