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
	resident, _ := statm()
	return resident
}

// Private returns the physical memory in bytes that only this process uses, or 0 if unknown.
func Private() int64 {
	resident, shared := statm()
	return resident - shared
}

// statm returns the physical memory of this process in bytes, and how much of it other
// processes may use as well; 0 if unknown.
func statm() (resident, shared int64) {
	text, _ := os.ReadFile("/proc/self/statm")
	var virtual int64 // the file counts pages
	if n, _ := fmt.Sscan(string(text), &virtual, &resident, &shared); n < 3 {
		return 0, 0
	}
	page := int64(os.Getpagesize())
	return resident * page, shared * page
}

// Available returns the memory in bytes that can be allocated without swapping and within the
// limit of this process's control group, or 0 if unknown.
func Available() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := strings.Cut(string(text), "\nMemAvailable:")
	kilobytes, ok := number(after)
	if !ok {
		return 0
	}
	_, left := cgroupMemory(os.DirFS("/"))
	return min(kilobytes<<10, left)
}
