package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/plan"
)

func newCacheCmd() *cobra.Command {
	return newGroup("cache", "Show or end the caches of a running manager, or make caches usable by HTTP",
		newCacheListCmd(), newCacheDescribeCmd(), newCacheDeallocateCmd(), newCacheProxyCmd())
}

func newCacheListCmd() *cobra.Command {
	return newAnswerCmd("list", "List caches with their size, VMs and price", cobra.NoArgs,
		func(ctx context.Context, m access.Client, _ []string) (*connect.Response[managerv1.DescribeResponse], error) {
			r, err := m.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
			if err == nil {
				r.Msg = &managerv1.DescribeResponse{Caches: r.Msg.GetCaches()}
			}
			return r, err
		},
		func(w io.Writer, r *managerv1.DescribeResponse) error { return printCaches(w, r.GetCaches()) })
}

func newCacheDescribeCmd() *cobra.Command {
	return newAnswerCmd("describe ID", "Show the VMs of a cache, and why they were chosen", cobra.ExactArgs(1),
		func(ctx context.Context, m access.Client, args []string) (*connect.Response[managerv1.DescribeCacheResponse], error) {
			return m.DescribeCache(ctx, connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: args[0]}))
		}, printCache)
}

func newCacheDeallocateCmd() *cobra.Command {
	cmd := newAnswerCmd("deallocate ID", "Take a cache's memory back, whoever uses it", cobra.ExactArgs(1),
		func(ctx context.Context, m access.Client, args []string) (*connect.Response[managerv1.DeallocateResponse], error) {
			r, err := m.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: args[0]}))
			if err == nil && !r.Msg.GetExisted() {
				err = fmt.Errorf("cache %s: the manager does not know it, and has seen no server that lends memory to it", args[0])
			}
			return r, err
		}, func(io.Writer, *managerv1.DeallocateResponse) error { return nil })
	cmd.Long = cmd.Short + `.

What the cache holds is lost. A manager with another catalog, or an older copy, may find servers that
lend memory to clients of caches that it does not know. It logs this, counts them in the metric
redykv_manager_unknown_grants, and takes nothing back. This command does, by the cache's ID.`
	return cmd
}

func printCaches(w io.Writer, caches []*managerv1.Cache) error {
	return table(w, "CACHE\tAGE\tCAPACITY\tC,S,B,Q\tVMS\tDISTANCE\tPRICE\tLINGERS\tSLO", func(t *tabwriter.Writer) {
		for _, c := range caches {
			vms := make(map[string]bool)
			for _, s := range c.GetGrants() {
				vms[s.GetVm().GetId()] = true
			}
			fmt.Fprintf(t, "%s\t%s\t%v\t%s\t%d\t%s\t%v\t%s\t%s\n", c.GetId(), ageText(c.GetCreatedUnixMs()), units.Size(c.GetCapacity()), configText(c.GetConfiguration()),
				len(vms), distanceText(c.GetDistance()), plan.Price(c.GetPriceMicros()), lingerText(c), sloText(c))
		}
	})
}

// ageText returns how long ago something was created or measured, if that is known.
func ageText(createdUnixMs int64) string {
	if createdUnixMs == 0 {
		return "?"
	}
	const day = 24 * time.Hour
	d := time.Since(time.UnixMilli(createdUnixMs)).Round(time.Second)
	if d < 2*day {
		return d.String()
	}
	return fmt.Sprintf("%d days", d/day)
}

// lingerText says how long a cache outlives its client, or until when, if it has none.
func lingerText(c *managerv1.Cache) string {
	switch {
	case c.GetLingersUnixMs() > 0:
		return "until " + timeText(c.GetLingersUnixMs())
	case c.GetLingerMs() > 0:
		return (time.Duration(c.GetLingerMs()) * time.Millisecond).String()
	}
	return "-"
}

func configText(c *managerv1.Configuration) string {
	return fmt.Sprintf("%d,%d,%d,%d", c.GetClientThreads(), c.GetServerThreads(), c.GetBatchSize(), c.GetQueueDepth())
}

func distanceText(d uint32) string {
	if d == 0 {
		return "?"
	}
	return fmt.Sprint(d)
}

func printCache(w io.Writer, r *managerv1.DescribeCacheResponse) error {
	c := r.GetCache()
	if err := printCaches(w, []*managerv1.Cache{c}); err != nil {
		return err
	}
	if d := c.GetDurationSeconds(); d > 0 && c.GetCreatedUnixMs() > 0 {
		then := "it is not deleted then"
		if r.GetDurationEnforced() {
			then = "it is deleted then"
		}
		fmt.Fprintf(w, "expected to be needed until %s; %s\n", timeText(c.GetCreatedUnixMs()+1000*d), then)
	}
	switch linger := time.Duration(c.GetLingerMs()) * time.Millisecond; {
	case c.GetLingersUnixMs() > 0:
		fmt.Fprintf(w, "no client: its lease has ended, and it is kept and paid for until %s\n", timeText(c.GetLingersUnixMs()))
	case linger > 0:
		fmt.Fprintf(w, "kept and paid for during %v after its client's lease has ended\n", linger)
	}
	if n := c.GetHolder(); n > 0 {
		fmt.Fprintf(w, "taken up by client number %d; number 0 allocated it\n", n)
	}
	if owner := c.GetOwner(); owner != "" {
		fmt.Fprintf(w, "allocated with token %s\n", owner)
	}
	for _, waits := range r.GetPending() {
		fmt.Fprintln(w, "pending:", waits)
	}
	if err := printFigures(w, c); err != nil {
		return err
	}
	fmt.Fprintln(w)
	err := table(w, "GRANT\tVM\tTYPE\tREGIONS\tCORES\tPRICE\tMACHINE\t", func(t *tabwriter.Writer) {
		for _, s := range c.GetGrants() {
			note := ""
			switch {
			case !s.GetVm().GetHealthy():
				note = "failed"
			case s.GetVm().GetLeaving():
				note = "reclaimed at " + timeText(s.GetVm().GetDeadlineUnixMs())
			case s.GetPending():
				note = "the cache is moving there"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%v\t%s\t%s\n", s.GetId(), s.GetVm().GetId(), typeText(s.GetVm()), s.GetRegions(), s.GetCores(),
				plan.Price(s.GetPriceMicros()), machineText(s.GetVm()), note)
		}
	})
	if err == nil {
		err = printEvents(w, r.GetEvents())
	}
	for _, d := range r.GetDecisions() {
		if err == nil {
			err = printDecision(w, d)
		}
	}
	return err
}

// sloText says whether a cache's SLO is broken, or in how many of the last judged windows it was kept.
func sloText(c *managerv1.Cache) string {
	switch {
	case c.GetSloBroken():
		return "broken"
	case !bounded(c.GetSlo()) || c.GetMeasured() == nil:
		return "-"
	}
	if n := c.GetWindowsJudged(); n > 0 {
		return fmt.Sprintf("kept %d of %d", n-c.GetWindowsMissed(), n)
	}
	return "not broken"
}

// bounded reports whether an SLO has a bound.
func bounded(s *managerv1.Slo) bool { return s.GetMaxLatencyUs() > 0 || s.GetMinThroughputMops() > 0 }

// printFigures prints what was asked of a cache, what its configuration is predicted to give with
// full queues, and what its client has measured in its latest window.
func printFigures(w io.Writer, c *managerv1.Cache) error {
	slo, predicted, measured, q := c.GetSlo(), c.GetPredicted(), c.GetMeasured(), c.GetConfiguration()
	if !bounded(slo) && predicted == nil && measured == nil {
		return nil
	}
	fmt.Fprintln(w)
	full := float64(q.GetClientThreads()) * float64(q.GetBatchSize()) * float64(q.GetQueueDepth())
	err := table(w, "SLO\tMEAN LATENCY\tP99\tTHROUGHPUT\tIN FLIGHT\tRECORD\t", func(t *tabwriter.Writer) {
		row := func(name string, mean, p99, mops, inFlight float64, record uint32, note string) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, figureText(mean, "us"), figureText(p99, "us"), figureText(mops, "Mop/s"),
				figureText(inFlight, ""), figureText(float64(record), "B"), note)
		}
		if bounded(slo) {
			note := ""
			switch slo.GetOperations() {
			case managerv1.Slo_OPERATIONS_READS:
				note = "reads only"
			case managerv1.Slo_OPERATIONS_WRITES:
				note = "writes only"
			}
			row("asked", slo.GetMaxLatencyUs(), 0, slo.GetMinThroughputMops(), 0, slo.GetRecordSize(), note)
		}
		if predicted != nil {
			row("predicted", predicted.GetLatencyUs(), 0, predicted.GetThroughputMops(), full, slo.GetRecordSize(), "with full queues")
		}
		ago := (time.Duration(measured.GetEndedAgoMs()) * time.Millisecond).Round(time.Second)
		note := fmt.Sprintf("until %v ago", ago)
		if c.GetSloBroken() {
			note += ": the SLO is broken"
		}
		for i, m := range []*managerv1.Measured{measured.GetReads(), measured.GetWrites()} {
			if m != nil {
				row([]string{"measured reads", "measured writes"}[i], m.GetMeanLatencyUs(), m.GetP99LatencyUs(), m.GetThroughputMops(), m.GetInFlight(), m.GetRecordSize(), note)
			}
		}
	})
	if m := c.GetModel(); m != nil {
		fmt.Fprintf(w, "predicted by the %s model of %s, %s old, measured %s; the margin is %.4g %%\n", originText(m), m.GetName(), ageText(m.GetMeasuredUnixMs()), m.GetProvenance(), 100*c.GetMargin())
		if m.GetNote() != "" {
			fmt.Fprintf(w, "%s\n", m.GetNote())
		}
	}
	if l, t := c.GetLatencyOfPredicted(), c.GetThroughputOfPredicted(); l > 0 {
		fmt.Fprintf(w, "measured last: latency x %.2f", l)
		if t > 0 {
			fmt.Fprintf(w, ", throughput x %.2f", t)
		}
		fmt.Fprintln(w, " of what is predicted")
	}
	if n := c.GetWindowsJudged(); n > 0 {
		fmt.Fprintf(w, "%d of the last %d judged windows kept the SLO\n", n-c.GetWindowsMissed(), n)
	}
	return err
}

// figureText formats a figure; 0: there is none.
func figureText(v float64, unit string) string {
	if v == 0 {
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("%.4g %s", v, unit))
}

// machineText returns where a VM runs.
func machineText(v *managerv1.Vm) string {
	if v.GetName() == "" {
		return cmp.Or(v.GetMachine(), "-")
	}
	return v.GetName() + " on " + v.GetMachine()
}

// printEvents prints what has happened to the VMs of a cache.
func printEvents(w io.Writer, all []*managerv1.WatchResponse) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return table(w, "EVENT\tVM\tWHY", func(t *tabwriter.Writer) {
		for _, e := range all {
			what := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(e.GetKind().String(), "KIND_"), "_", " "))
			fmt.Fprintf(t, "%s\t%s\t%s\n", what, strings.TrimSpace(strings.Join(e.GetVmIds(), " ")+" "+e.GetVmId()), e.GetReason())
		}
	})
}

// printDecision prints which VMs were chosen and why.
func printDecision(w io.Writer, d *managerv1.Decision) error {
	fmt.Fprintf(w, "\n%s at %s: %v\n", d.GetWhat(), timeText(d.GetAtUnixMs()), plan.Price(d.GetPriceMicros()))
	return table(w, "WHAT\tDISTANCE\tPRICE\tWHY", func(t *tabwriter.Writer) {
		for _, s := range d.GetSites() {
			price := "-"
			if s.GetVms() > 0 { // there is a plan
				price = plan.Price(s.GetPriceMicros()).String()
			}
			fmt.Fprintf(t, "all with %s\t%s\t%s\t%s\n", configText(s.GetConfiguration()), distanceText(s.GetDistance()), price, s.GetReason())
		}
		for _, v := range d.GetVerdicts() {
			fmt.Fprintf(t, "%s\t%s\t%v\t%s\n", v.GetName(), distanceText(v.GetDistance()), plan.Price(v.GetPriceMicros()), v.GetReason())
		}
	})
}
