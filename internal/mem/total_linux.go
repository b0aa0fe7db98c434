package mem

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Total is the memory that this process may have, in bytes: the machine's, or less
// where its control group, a container's say, is limited to less. 0 where it is not
// known.
func Total() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	limit, _ := cgroupMemory(os.DirFS("/"))
	return min(int64(info.Totalram)*int64(info.Unit), limit)
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

// Private is the physical memory of this process that it shares with no other, in
// bytes, or 0 where it is not known.
func Private() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var virtual, resident, shared int64 // in pages
	if _, err := fmt.Sscan(string(text), &virtual, &resident, &shared); err != nil {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}

// Available is how much memory can be had without pressing others for theirs, nor
// meeting the limit of this process's control group, in bytes, or 0 where it is not
// known.
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
	_, left := cgroupMemory(os.DirFS("/"))
	return min(kilobytes<<10, left)
}
