package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/plan"
)

func newCacheCmd() *cobra.Command {
	return newGroup("cache", "Show the caches of a running manager",
		newCacheListCmd(), newCacheDescribeCmd())
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

func printCaches(w io.Writer, caches []*managerv1.Cache) error {
	return table(w, "CACHE\tCAPACITY\tC,S,B,Q\tVMS\tDISTANCE\tPRICE", func(t *tabwriter.Writer) {
		for _, c := range caches {
			vms := make(map[string]bool)
			for _, s := range c.GetGrants() {
				vms[s.GetVm().GetId()] = true
			}
			fmt.Fprintf(t, "%s\t%v\t%s\t%d\t%s\t%v\n", c.GetId(), units.Size(c.GetCapacity()), configText(c.GetConfiguration()),
				len(vms), distanceText(c.GetDistance()), plan.Price(c.GetPriceMicros()))
		}
	})
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
	for _, waits := range r.GetPending() {
		fmt.Fprintln(w, "pending:", waits)
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
