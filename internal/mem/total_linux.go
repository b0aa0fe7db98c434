package mem

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Total returns the memory in bytes that this process may use: the machine's, or the limit of
// its control group (such as a container's) if that is lower. 0 if unknown.
func Total() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	limit, _ := cgroupMemory(os.DirFS("/"))
	return min(int64(info.Totalram)*int64(info.Unit), limit)
}

// Resident returns the physical memory of this process in bytes, or 0 if unknown.
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

// Private returns the physical memory in bytes that only this process uses, or 0 if unknown.
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

// Available returns the memory in bytes that can be allocated without swapping and within the
// limit of this process's control group, or 0 if unknown.
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
