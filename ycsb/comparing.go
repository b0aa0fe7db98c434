package ycsb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
)

// comparing is a comparison that runs.
type comparing struct {
	Comparison
	progress Progress
	limit    memoryLimit
	specs    []Spec
	hosts    map[subject]host
	killed   map[subject]death // the stores that the kernel has killed
	runs     [][]Result        // of each of specs, in the order of rounds
	disks    ceilings
}

// death says when a store was killed, and at which limit.
type death struct {
	limit   memoryLimit
	loading bool
}

// after describes the death for an experiment of which that many rounds were measured.
func (d death) after(rounds int) string {
	when := fmt.Sprintf("after %d rounds", rounds)
	switch {
	case d.loading:
		when = "while it was loaded"
	case rounds == 1:
		when = "after 1 round"
	}
	return fmt.Sprintf("killed at its memory limit of %v %s", units.Size(d.limit.Bytes), when)
}

func newComparing(c Comparison, progress Progress) *comparing {
	specs := c.specs()
	return &comparing{
		Comparison: c, progress: bench.OrQuiet(progress), limit: c.limits(), specs: specs,
		hosts: make(map[subject]host), killed: make(map[subject]death), runs: make([][]Result, len(specs)),
	}
}

// open opens and loads the stores one after the other, and prepares the disk.
func (c *comparing) open(ctx context.Context) error {
	for _, s := range c.subjects() {
		h, err := c.host(ctx, s)
		if err != nil {
			return err
		}
		c.hosts[s] = h
		c.progress.Begin(fmt.Sprintf("load %v", s), c.Records+c.churn())
		err = h.load(ctx, c.progress)
		c.progress.End()
		if err := c.bury(s, err, true); err != nil {
			return err
		}
	}
	return c.openCeilings(ctx)
}

// host makes a store's host.
func (c *comparing) host(ctx context.Context, s subject) (host, error) {
	o := opening{Device: s.device, Shape: c.shape(s), Churn: c.churn(), Dir: filepath.Join(c.Dir, s.String())}
	if isPeer(s.device) {
		o.Caches = c.caches(s)
	}
	if c.Child == nil {
		return newInProcess(ctx, o)
	}
	limit := c.limit.of(s)
	return newRemote(ctx, c.Child, o, limit, c.goMemory(s, limit))
}

// bury records the death of a store if err is that, and otherwise returns err.
func (c *comparing) bury(s subject, err error, loading bool) error {
	if killed := new(killedError); errors.As(err, &killed) {
		c.killed[s] = death{killed.limit, loading}
		return nil
	}
	return err
}

// run runs all rounds on the stores that live.
func (c *comparing) run(ctx context.Context) error {
	for round := range max(c.Rounds, 1) {
		for i, spec := range c.specs {
			if _, dead := c.killed[spec.subject()]; dead {
				continue
			}
			spec.Seed = seed(round, len(c.specs), i)
			if err := c.experiment(ctx, i, spec); err != nil {
				return err
			}
		}
		if err := c.disks.round(ctx, c.Comparison, c.progress); err != nil {
			return err
		}
	}
	return nil
}

// experiment runs one of specs, with a seed.
func (c *comparing) experiment(ctx context.Context, i int, spec Spec) error {
	s := spec.subject()
	result, err := c.hosts[s].run(ctx, spec, c.progress)
	if err != nil {
		return c.bury(s, err, false)
	}
	c.limited(&result, s)
	if c.OnResult != nil {
		c.OnResult(result)
	}
	c.runs[i] = append(c.runs[i], result)
	return nil
}

// limited sets a result's memory limit.
func (c *comparing) limited(r *Result, s subject) {
	limit := c.limit.of(s)
	r.MemoryLimit, r.Limit = limit.Bytes, limit.What
}

// results returns the results of the comparison so far.
func (c *comparing) results() (results []Result) {
	var all []summary
	for i, rounds := range c.runs {
		spec := c.specs[i]
		died, dead := c.killed[spec.subject()]
		if len(rounds) == 0 && !dead {
			continue
		}
		s := summary{Result: new(Target).stamped(spec)}
		if len(rounds) > 0 {
			s = summarize(rounds)
		} else {
			c.limited(&s.Result, spec.subject())
		}
		if dead {
			s.Killed = died.after(len(rounds))
		}
		all = append(all, s)
	}
	for _, rounds := range c.disks.best() {
		all = append(all, summarize(rounds))
	}
	compare(all)
	order := append(slices.Clone(c.Devices), DiskAlone)
	slices.SortStableFunc(all, func(a, b summary) int {
		return cmp.Or(slices.Index(order, a.Device)-slices.Index(order, b.Device), cmp.Compare(a.ReadCache, b.ReadCache))
	})
	for _, s := range all {
		results = append(results, s.Result)
	}
	return results
}

// close ends the stores and the disk's measurement.
func (c *comparing) close() (err error) {
	err = c.disks.Close()
	for _, h := range c.hosts {
		err = errors.Join(err, h.Close())
	}
	return err
}
