package affinity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// node is a NUMA node with the processors that this process may use.
type node struct {
	id   int
	cpus []int
}

// CPUs are numbers of processors. It is a flag's value.
type CPUs []int

// String is the list as the kernel prints it, without ranges.
func (c CPUs) String() string {
	var parts []string
	for _, cpu := range c {
		parts = append(parts, strconv.Itoa(cpu))
	}
	return strings.Join(parts, ",")
}

// Set reads a list such as 1 or 4-7,12.
func (c *CPUs) Set(list string) error {
	cpus, err := parseList(list)
	if err != nil || len(cpus) == 0 {
		return errors.New("want processors such as 1 or 4-7,12")
	}
	*c = cpus
	return nil
}

// Type is what flags call a value.
func (c CPUs) Type() string { return "processors" }

// maxCPU bounds the numbers of processors that are accepted.
const maxCPU = 1 << 16

// parseList reads a list of processors as the kernel prints it: 0-3,8,10-11.
func parseList(s string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		if part == "" {
			continue // a node of memory alone
		}
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to < from || to >= maxCPU {
			return nil, fmt.Errorf("bad list of processors %q", s)
		}
		for c := from; c <= to; c++ {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}

// within is the part of cpus that is in allowed.
func within(cpus, allowed []int) []int {
	return slices.DeleteFunc(cpus, func(c int) bool { return !slices.Contains(allowed, c) })
}

// systemNodes is the directory in which Linux describes its NUMA nodes.
const systemNodes = "/sys/devices/system/node"

// nodesOf returns the NUMA nodes below root with processors of allowed; none if the system does
// not tell.
func nodesOf(root string, allowed []int) []node {
	dirs, _ := filepath.Glob(filepath.Join(root, "node[0-9]*")) // a pattern without fault
	var nodes []node
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		list, err := os.ReadFile(filepath.Join(dir, "cpulist"))
		if err != nil {
			continue
		}
		cpus, err := parseList(string(list))
		if err != nil {
			continue
		}
		if cpus = within(cpus, allowed); len(cpus) > 0 {
			nodes = append(nodes, node{id: id, cpus: cpus})
		}
	}
	return nodes
}
