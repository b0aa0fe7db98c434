package mem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a control group with a memory limit for processes that this one starts. The limit
// includes the page cache that they fill.
type Group struct {
	dir     string
	version int
}

// place is a control group in which others can be made.
type place struct {
	dir     string // without the leading slash
	version int
}

// NewGroup makes a control group of version 2, or of version 1 where that has the memory
// controller. The error says why each place where it could be was refused. The caller closes
// the group.
func NewGroup(limit int64) (*Group, error) {
	var reasons []error
	for _, p := range places(os.DirFS("/")) {
		g := &Group{version: p.version}
		if err := g.create(filepath.Join("/", p.dir), limit); err != nil {
			reasons = append(reasons, err)
			continue
		}
		return g, nil
	}
	if len(reasons) == 0 {
		return nil, errors.New("no control group of this process has a memory controller")
	}
	return nil, fmt.Errorf("no control group can be made: %w", reasons[0])
}

// create makes the directory, in another group's, and sets the limit.
func (g *Group) create(in string, limit int64) (err error) {
	if g.version == 2 {
		// The kernel refuses it in a group that has processes, except for the root.
		controllers := filepath.Join(in, "cgroup.subtree_control")
		if text, err := os.ReadFile(controllers); err == nil && !slices.Contains(strings.Fields(string(text)), "memory") {
			if err := set(controllers, "+memory"); err != nil {
				return err
			}
		}
	}
	// Processes in different PID namespaces have the same numbers, so those do not tell groups apart.
	if g.dir, err = os.MkdirTemp(in, "redykv-"); err != nil {
		return err
	}
	file, swap := "memory.max", "memory.swap.max"
	if g.version == 1 {
		file, swap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	}
	err = set(filepath.Join(g.dir, file), strconv.FormatInt(limit, 10))
	if err != nil {
		return errors.Join(err, os.Remove(g.dir))
	}
	// Without swap accounting there are no such files.
	if g.version == 1 {
		_ = set(filepath.Join(g.dir, swap), strconv.FormatInt(limit, 10)) // memory and swap together
	} else {
		_ = set(filepath.Join(g.dir, swap), "0")
	}
	return nil
}

// set writes a file of a control group, which exists.
func set(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Version returns the version of control groups: 1 or 2.
func (g *Group) Version() int { return g.version }

// Add moves a process into the group. Memory that it has stays charged to its former group.
func (g *Group) Add(pid int) error {
	return set(filepath.Join(g.dir, "cgroup.procs"), strconv.Itoa(pid))
}

// Kills returns how many of the group's processes the kernel has killed at the limit.
func (g *Group) Kills() int64 {
	file := "memory.events"
	if g.version == 1 {
		file = "memory.oom_control"
	}
	for line := range strings.Lines(readText(os.DirFS(g.dir), file)) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := number(text)
			return n
		}
	}
	return 0
}

// Close removes the group, whose processes must have ended. The kernel may need a moment
// until it counts them out.
func (g *Group) Close() error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if err := os.Remove(g.dir); !errors.Is(err, unix.EBUSY) || time.Since(began) > time.Second {
			return err
		}
	}
}

// places returns the groups below which this process may be able to make one with a memory
// limit, in the order of preference: those of version 2 before those of version 1, its own
// group before those around it. root is the root directory.
func places(root fs.FS) (all []place) {
	for _, h := range hierarchies(root) {
		controllers := strings.Fields(readText(root, path.Join(h.top, "cgroup.controllers")))
		if h.version == 2 && !slices.Contains(controllers, "memory") {
			continue
		}
		for dir := path.Join(h.top, h.group); ; dir = path.Dir(dir) {
			all = append(all, place{dir, h.version})
			// In version 1 a group with processes can have others below it.
			if h.version == 1 || len(dir) <= len(h.top) {
				break
			}
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return b.version - a.version })
	return all
}
