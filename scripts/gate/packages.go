package main

import (
	"slices"
	"strings"
)

const module = "github.com/redykv/redykv/"

// alone are the packages whose tests start engines, many processes, or goroutines that poll. Each
// runs with nothing beside it.
var alone = []string{
	"redytier", "cmd/redykv", "manager", "manager/catalog", "manager/allocator/kubernetes",
	"internal/blackbox", "internal/kubetest", "internal/console", "internal/paper/report", "packaging/kubernetes",
}

// raced are the packages that run under the race detector too: goroutines share memory there, and
// tests exercise it. A name that ends with /... stands for the packages below it as well.
var raced = []string{
	"hlog", "kv", "kv/internal/...", "kv/inspect", "kv/resp", "device/...", "ssdtier/...", "server", "redytier/...",
	"manager", "manager/access", "manager/allocator", "manager/api", "manager/beats", "manager/catalog", "manager/menu",
	"internal/clock", "internal/epoch", "internal/fabric", "internal/fabric/core", "internal/fabric/mem",
	"internal/fabric/shm", "internal/fabric/tcp", "internal/memhttp", "internal/missratio", "internal/queue",
	"internal/readcache", "cmd/redykv",
}

// racedAlone are those of raced that run with nothing beside them.
var racedAlone = []string{"redytier", "kv", "manager", "manager/catalog", "cmd/redykv"}

// racedTests chooses tests of a package under the race detector, by name; the others start engines,
// or repeat what other packages cover.
var racedTests = map[string]string{
	"cmd/redykv": "^TestScript$/^(serve|serve_redy|manager_survives|cache_moves|serve_durability)$",
}

// listed reports whether names has a package.
func listed(names []string, pkg string) bool {
	pkg = strings.TrimPrefix(pkg, module)
	return slices.ContainsFunc(names, func(name string) bool {
		below, tree := strings.CutSuffix(name, "/...")
		return pkg == below || tree && strings.HasPrefix(pkg, below+"/")
	})
}

// A job is a package's test binary to run, or a script that passes or fails as a whole.
type job struct {
	pkg, dir, binary string
	race             bool
	tests            string // -test.run; empty: all
	script           bool
}

// name is what the summary calls the job.
func (j job) name() string {
	name := strings.TrimPrefix(j.pkg, module)
	if j.race {
		name += " [race]"
	}
	return name
}

// A stage is jobs, of which several run at a time.
type stage struct {
	name string
	wide int
	jobs []job
}

// plan sorts jobs into stages.
func plan(jobs []job) []stage {
	stages := []stage{{name: "light", wide: 2}, {name: "alone", wide: 1}, {name: "race", wide: 2}, {name: "race alone", wide: 1}, {name: "scripts", wide: 1}}
	for _, j := range jobs {
		at, names := 0, alone
		if j.race {
			at, names = 2, racedAlone
		}
		if listed(names, j.pkg) {
			at++
		}
		if j.script {
			at = len(stages) - 1
		}
		stages[at].jobs = append(stages[at].jobs, j)
	}
	return stages
}
