package mem

import (
	"math"
	"os"
	"testing"
	"testing/fstest"
)

const (
	mountV2 = "25 24 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1 = "30 24 0:25 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n" +
		"33 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"34 30 0:29 / /sys/fs/cgroup/memory rw shared:9 master:2 - cgroup cgroup rw,memory\n"
	none = math.MaxInt64
)

// The tightest limit counts, among the process's group and its ancestors, in either version,
// however the mount shows the group.
func TestCgroupMemory(t *testing.T) {
	for name, c := range map[string]struct {
		files       map[string]string
		limit, left int64
	}{
		"no control groups": {nil, none, none},
		"no limit": {map[string]string{
			"proc/self/cgroup": "0::/user.slice\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/user.slice/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.current": "5\n",
		}, none, none},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/pod/container\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/pod/container/memory.max":     "9000\n",
			"sys/fs/cgroup/pod/container/memory.high":    "8000\n",
			"sys/fs/cgroup/pod/container/memory.current": "3000\n",
			"sys/fs/cgroup/pod/container/memory.stat":    "anon 2000\ninactive_file 500\nactive_file 500\n",
		}, 8000, 5500},
		"the group around is tighter": {map[string]string{
			"proc/self/cgroup": "0::/pod/container\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/pod/container/memory.max":     "9000\n",
			"sys/fs/cgroup/pod/container/memory.current": "8500\n",
			"sys/fs/cgroup/pod/memory.max":               "7000\n",
			"sys/fs/cgroup/pod/memory.current":           "1000\n",
		}, 7000, 500},
		"a namespace of its own": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "150\n",
		}, 100, 0},
		"version 1": {map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/c\n4:memory:/m\n0::/u\n", "proc/self/mountinfo": mountV1,
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "6000\n",
			"sys/fs/cgroup/memory/m/memory.usage_in_bytes": "5000\n",
			"sys/fs/cgroup/memory/m/memory.stat":           "inactive_file 1\ntotal_inactive_file 1000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
			"sys/fs/cgroup/cpu/c/memory.limit_in_bytes":    "1\n", // a group of another controller
		}, 6000, 2000},
		"a container that sees its own group": {map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abc/inner\n",
			"proc/self/mountinfo": "34 30 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" +
				"nonsense\n35 30 0:1 / /tmp rw - tmpfs\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":       "4000\n",
			"sys/fs/cgroup/memory/inner/memory.limit_in_bytes": "3000\n",
			"sys/fs/cgroup/memory/inner/memory.usage_in_bytes": "nonsense\n",
		}, 3000, none},
		"a group that the mount does not show": {map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/abcd\n",
			"proc/self/mountinfo":                        "34 30 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
		}, 4000, 3000},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if limit, left := cgroupMemory(root); limit != c.limit || left != c.left {
			t.Errorf("%s: limit %d, %d left, want %d and %d", name, limit, left, c.limit, c.left)
		}
	}
}

// Total and Available are consistent with each other and with this machine's limit.
func TestTotal(t *testing.T) {
	total, available := Total(), Available()
	if available <= 0 || total < available {
		t.Errorf("%d bytes available of %d", available, total)
	}
	if limit, left := cgroupMemory(os.DirFS("/")); total > limit || left > limit {
		t.Errorf("%d bytes in all, limited to %d, of which %d are left", total, limit, left)
	}
}
