package affinity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// systemCPUs is the directory in which Linux describes its processors.
const systemCPUs = "/sys/devices/system/cpu"

// Halves returns the processors that this process may use in two halves, the first of which has
// one more if their number is odd. Processors that share a core are in one half, except for the
// core in the middle. It fails if there are fewer than two processors, or the system does not
// tell.
func Halves() (first, second []int, err error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, nil, fmt.Errorf("affinity: reading the processors of this process: %w", err)
	}
	if len(allowed) < 2 {
		return nil, nil, errors.New("affinity: this process may use only one processor, which cannot be divided")
	}
	first, second = halves(systemCPUs, allowed)
	return first, second, nil
}

// halves returns the halves of allowed, with the cores that are described below root.
func halves(root string, allowed []int) (first, second []int) {
	core := map[int]int{} // of a processor: the first one on the same core
	for _, cpu := range allowed {
		core[cpu] = cpu
		list, err := os.ReadFile(filepath.Join(root, "cpu"+strconv.Itoa(cpu), "topology", "thread_siblings_list"))
		if err != nil {
			continue
		}
		if shared, err := parseList(string(list)); err == nil && len(shared) > 0 {
			core[cpu] = slices.Min(shared)
		}
	}
	sorted := slices.Clone(allowed)
	slices.SortStableFunc(sorted, func(a, b int) int { return core[a] - core[b] })
	half := (len(sorted) + 1) / 2
	return sorted[:half:half], sorted[half:]
}
