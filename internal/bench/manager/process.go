package manager

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// usage is what a process has used until now. It is zero where there is no /proc.
type usage struct {
	at  time.Time
	cpu time.Duration // of all threads
	rss int64         // bytes of memory
}

// tick is the unit of processor time in /proc on Linux.
const tick = 10 * time.Millisecond

func usageOf(pid int) usage {
	u := usage{at: time.Now()}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// The second field is the program's name in parentheses.
	_, rest, _ := strings.Cut(string(stat), ") ")
	var (
		state        string
		skip         int64
		user, system int64
		rssPages     int64
	)
	// Fields 14, 15 and 24 of proc_pid_stat(5).
	fields := []any{&state}
	for range 10 {
		fields = append(fields, &skip)
	}
	fields = append(fields, &user, &system)
	for range 8 {
		fields = append(fields, &skip)
	}
	if _, err := fmt.Sscan(rest, append(fields, &rssPages)...); err != nil {
		return u
	}
	u.cpu, u.rss = time.Duration(user+system)*tick, rssPages*int64(os.Getpagesize())
	return u
}
