package mem

import "golang.org/x/sys/unix"

// Total is the machine's memory in bytes, or 0 where it is not known.
func Total() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
