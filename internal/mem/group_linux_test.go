package mem

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A group is made in version 2 if that has the memory controller, otherwise in version 1.
func TestPlaces(t *testing.T) {
	const mountBoth = "36 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" + mountV1
	for name, c := range map[string]struct {
		own, mounts, controllers string // the last of version 2
		want                     []place
	}{
		"none": {},
		"version 2": {
			"0::/user.slice/app.scope\n", mountV2, "cpu memory pids\n",
			[]place{{"sys/fs/cgroup/user.slice/app.scope", 2}, {"sys/fs/cgroup/user.slice", 2}, {"sys/fs/cgroup", 2}},
		},
		"version 2 without the controller": {"0::/user.slice\n", mountV2, "cpu pids\n", nil},
		"version 1":                        {"4:memory:/m/n\n", mountV1, "", []place{{"sys/fs/cgroup/memory/m/n", 1}}},
		"both, the controller in version 1": {
			"4:memory:/m\n0::/\n", mountBoth, "hugetlb\n", []place{{"sys/fs/cgroup/memory/m", 1}},
		},
	} {
		root := fstest.MapFS{
			"proc/self/cgroup":    {Data: []byte(c.own)},
			"proc/self/mountinfo": {Data: []byte(c.mounts)},
		}
		for _, top := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
			root[top+"/cgroup.controllers"] = &fstest.MapFile{Data: []byte(c.controllers)}
		}
		if got := places(root); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A process beyond the limit of its group is killed, and one within the limit is not.
func TestGroup(t *testing.T) {
	g, err := NewGroup(64 << 20)
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	if g.Version() != 1 && g.Version() != 2 {
		t.Errorf("version %d", g.Version())
	}
	for _, c := range []struct {
		megabytes string
		killed    bool
	}{{"1", false}, {"256", true}} {
		before := g.Kills()
		// The shell waits for a line, and then holds that many zeros.
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `read && text=$(head -c "$0"M /dev/zero | tr '\0' x) && echo ${#text}`, c.megabytes)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := g.Add(cmd.Process.Pid); err != nil {
			t.Error(err)
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Error(err)
		}
		err = cmd.Wait()
		if killed := g.Kills() > before; killed != c.killed || (err != nil) != c.killed {
			t.Errorf("%s MiB: %v, %q, killed: %v", c.megabytes, err, out.String(), killed)
		}
	}
}
