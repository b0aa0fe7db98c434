package goycsb

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/magiconair/properties"
)

// The six core workloads as YCSB defines them. Those of go-ycsb choose records uniformly;
// these use the distributions of the definition.
//
//go:embed workloads
var workloads embed.FS

// Workloads returns the names of the workloads that [Properties] knows without a file.
func Workloads() []string {
	entries, err := workloads.ReadDir("workloads")
	if err != nil {
		panic(fmt.Sprintf("goycsb: embedded workloads: %v", err)) // the build embeds them
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names
}

// workloadText returns the workload file of that name, or else the core workload of that name.
func workloadText(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	for _, known := range Workloads() {
		if name == known {
			return workloads.ReadFile(path.Join("workloads", name))
		}
	}
	return nil, fmt.Errorf("workload %q is neither a file nor one of %v", name, Workloads())
}

// Properties reads workload files, or core workloads by name (workloada). Later ones override
// earlier ones, and assignments of the form name=value override all.
func Properties(files, assignments []string) (*properties.Properties, error) {
	// Expansion of expressions is disabled: no workload needs it, and a recursive expression
	// would exit the process.
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	all := properties.NewProperties()
	all.DisableExpansion = true
	for _, file := range files {
		text, err := workloadText(file)
		if err != nil {
			return nil, err
		}
		p, err := loader.LoadBytes(text)
		if err != nil {
			return nil, fmt.Errorf("workload %s: %w", file, err)
		}
		all.Merge(p)
	}
	for _, assignment := range assignments {
		name, value, found := strings.Cut(assignment, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("property %q: want name=value", assignment)
		}
		if _, _, err := all.Set(name, value); err != nil {
			return nil, fmt.Errorf("property %q: %w", assignment, err)
		}
	}
	return all, nil
}
