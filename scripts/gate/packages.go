package main

import (
	"slices"
	"strings"
	"sync"
)

const module = "github.com/redykv/redykv/"

// heavy are the packages whose tests keep all processors busy for long: by many processes, or by
// goroutines that poll. One of them runs at a time, in this order.
var heavy = []string{"cmd/redykv", "redytier"}

// slow are the packages that begin before others, so that no long one is left at the end. Those that
// start engines mostly wait for them.
var slow = []string{
	"internal/blackbox", "kv/resp", "kv", "ssdtier", "manager", "device", "device/blob", "manager/catalog", "packaging/kubernetes",
}

// raced are the packages that run under the race detector too: goroutines share memory there, and
// tests exercise it. A name that ends with /... stands for the packages below it as well.
var raced = []string{
	"hlog", "kv", "kv/internal/...", "kv/inspect", "kv/resp", "device/...", "ssdtier/...", "server", "redytier/...",
	"manager", "manager/access", "manager/allocator", "manager/api", "manager/catalog", "manager/menu",
	"internal/clock", "internal/epoch", "internal/fabric", "internal/fabric/core", "internal/fabric/mem",
	"internal/fabric/shm", "internal/fabric/tcp", "internal/memhttp", "internal/missratio", "internal/queue",
	"internal/readcache", "cmd/redykv",
}

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

// wide is the number of jobs that run at a time.
const wide = 3

// A stage is jobs, of which at most one that is heavy runs at a time.
type stage struct {
	name         string
	heavy, light []job
}

// plan sorts jobs into stages. Those under the race detector come last, in the stage of the others: a
// heavy job that mostly waits leaves them the processors.
func plan(jobs []job) []stage {
	stages := []stage{{name: "tests"}, {name: "scripts"}}
	for _, j := range jobs {
		s := &stages[0]
		if j.script {
			s = &stages[1]
		}
		if j.script || listed(heavy, j.pkg) {
			s.heavy = append(s.heavy, j)
		} else {
			s.light = append(s.light, j)
		}
	}
	for _, s := range stages {
		first(s.heavy, heavy)
		first(s.light, slow)
	}
	return stages
}

// first sorts jobs so that those without the race detector come first, and of these, and of the others,
// those of the named packages, in the order of the names.
func first(jobs []job, names []string) {
	place := func(j job) int {
		i := slices.Index(names, strings.TrimPrefix(j.pkg, module))
		if i < 0 {
			i = len(names)
		}
		if j.race {
			i += len(names) + 1
		}
		return i
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return place(a) - place(b) })
}

// turns hands out the jobs of a stage to workers: a heavy one while none runs, else a light one.
type turns struct {
	mu    sync.Mutex
	left  stage
	heavy bool // one runs
}

// next returns the next job and a function to call when it has ended, or false if there is none for
// this worker any more.
func (t *turns) next() (j job, ended func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.left.heavy) > 0 && !t.heavy {
		j, t.left.heavy, t.heavy = t.left.heavy[0], t.left.heavy[1:], true
		return j, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.heavy = false
		}, true
	}
	if len(t.left.light) > 0 {
		j, t.left.light = t.left.light[0], t.left.light[1:]
		return j, func() {}, true
	}
	return job{}, nil, false
}
