package mem

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
)

// cgroupFiles are the names of the files of one version of control groups.
type cgroupFiles struct {
	limits []string // files that hold a number of bytes, or a word for no limit
	usage  string
	cache  string // field of memory.stat that counts cached files which can be dropped at once
}

var (
	cgroupV1 = cgroupFiles{[]string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"}
	// A group above memory.high is slowed down until it is below.
	cgroupV2 = cgroupFiles{[]string{"memory.max", "memory.high"}, "memory.current", "inactive_file"}
)

// cgroupMemory returns the memory limit of this process's control groups, and the memory left
// below it, in bytes: those of the tightest group among its own and its ancestors, in either
// version. Without a limit both are math.MaxInt64. root is the root directory.
func cgroupMemory(root fs.FS) (limit, left int64) {
	limit, left = math.MaxInt64, math.MaxInt64
	for _, h := range hierarchies(root) {
		files := cgroupV2
		if h.version == 1 {
			files = cgroupV1
		}
		for dir := path.Join(h.top, h.group); ; dir = path.Dir(dir) {
			l, r := files.read(root, dir)
			limit, left = min(limit, l), min(left, r)
			if len(dir) <= len(h.top) {
				break
			}
		}
	}
	return limit, left
}

// hierarchy is a mounted tree of control groups that may limit memory.
type hierarchy struct {
	version int
	top     string // where it is mounted, without the leading slash
	group   string // this process's group below top
}

// hierarchies returns those that this process is in.
func hierarchies(root fs.FS) (all []hierarchy) {
	own := readText(root, "proc/self/cgroup")
	for line := range strings.Lines(readText(root, "proc/self/mountinfo")) {
		// 32 31 0:29 /root /mount/point options ... - type source options
		mount, kind, _ := strings.Cut(line, " - ")
		fields, kinds := strings.Fields(mount), strings.Fields(kind)
		if len(fields) < 5 || len(kinds) < 3 {
			continue
		}
		var version int
		var group string
		var ok bool
		switch {
		case kinds[0] == "cgroup2":
			version = 2
			group, ok = cgroupOf(own, "")
		case kinds[0] == "cgroup" && slices.Contains(strings.Split(kinds[2], ","), "memory"):
			version = 1
			group, ok = cgroupOf(own, "memory")
		}
		if ok {
			all = append(all, hierarchy{version, strings.TrimPrefix(fields[4], "/"), below(fields[3], group)})
		}
	}
	return all
}

// cgroupOf returns the process's group in the hierarchy of a controller. The empty controller
// is version 2.
func cgroupOf(own, controller string) (group string, ok bool) {
	for line := range strings.Lines(own) { // 4:cpu,memory:/group
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return path.Clean("/" + parts[2]), true
		}
	}
	return "", false
}

// below returns the path of a group below a mount whose root is root. A group outside of the
// mount is taken for the mount's root.
func below(root, group string) string {
	if root == "/" {
		return group
	}
	if rest, ok := strings.CutPrefix(group, root); ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return "/"
}

// read returns the limit of one group and the memory left. Unreadable files count as no limit.
func (f cgroupFiles) read(root fs.FS, dir string) (limit, left int64) {
	limit, left = math.MaxInt64, math.MaxInt64
	for _, name := range f.limits {
		if n, ok := number(readText(root, path.Join(dir, name))); ok {
			limit = min(limit, n)
		}
	}
	used, ok := number(readText(root, path.Join(dir, f.usage)))
	if limit == math.MaxInt64 || !ok {
		return limit, left
	}
	for line := range strings.Lines(readText(root, path.Join(dir, "memory.stat"))) {
		if text, ok := strings.CutPrefix(line, f.cache+" "); ok {
			cached, _ := number(text)
			used -= cached
		}
	}
	return limit, max(0, limit-used)
}

func number(text string) (n int64, ok bool) {
	_, err := fmt.Sscan(text, &n)
	return n, err == nil && n >= 0
}

func readText(root fs.FS, name string) string {
	text, _ := fs.ReadFile(root, name) // a missing file means no limit
	return string(text)
}
