package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/plan"
)

func newCacheCmd() *cobra.Command {
	return newGroup("cache", "Look at the caches of a running manager",
		newCacheListCmd(), newCacheDescribeCmd())
}

func newCacheListCmd() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List caches, what they have and what they cost",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client()
			if err != nil {
				return err
			}
			r, err := client.Describe(cmd.Context(), connect.NewRequest(&managerv1.DescribeRequest{}))
			if err != nil {
				return err
			}
			caches := r.Msg.GetCaches()
			return f.print(cmd, &managerv1.DescribeResponse{Caches: caches}, func(w io.Writer) error { return printCaches(w, caches) })
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func newCacheDescribeCmd() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "describe ID",
		Short: "Say which VMs a cache has, why these and why not others",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := f.client()
			if err != nil {
				return err
			}
			r, err := client.DescribeCache(cmd.Context(), connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: args[0]}))
			if err != nil {
				return err
			}
			return f.print(cmd, r.Msg, func(w io.Writer) error { return printCache(w, r.Msg) })
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// table writes rows of tab-separated cells in columns.
func table(w io.Writer, head string, rows func(*tabwriter.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	rows(t)
	return t.Flush()
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
		end := time.UnixMilli(c.GetCreatedUnixMs()).Add(time.Duration(d) * time.Second)
		then := "it is not deleted then"
		if r.GetDurationEnforced() {
			then = "it is deleted then"
		}
		fmt.Fprintf(w, "expected to be needed until %s; %s\n", end.UTC().Format(time.RFC3339), then)
	}
	fmt.Fprintln(w)
	err := table(w, "GRANT\tVM\tTYPE\tREGIONS\tCORES\tPRICE\t", func(t *tabwriter.Writer) {
		for _, s := range c.GetGrants() {
			note := ""
			switch {
			case !s.GetVm().GetHealthy():
				note = "failed"
			case s.GetVm().GetLeaving():
				note = "reclaimed at " + time.UnixMilli(s.GetVm().GetDeadlineUnixMs()).UTC().Format(time.RFC3339)
			case s.GetPending():
				note = "the cache is moving there"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%v\t%s\n", s.GetId(), s.GetVm().GetId(), typeText(s.GetVm()), s.GetRegions(), s.GetCores(),
				plan.Price(s.GetPriceMicros()), note)
		}
	})
	for _, d := range r.GetDecisions() {
		if err == nil {
			err = printDecision(w, d)
		}
	}
	return err
}

// printDecision prints which VMs were chosen and why.
func printDecision(w io.Writer, d *managerv1.Decision) error {
	fmt.Fprintf(w, "\n%s at %s: %v\n", d.GetWhat(), time.UnixMilli(d.GetAtUnixMs()).UTC().Format(time.RFC3339), plan.Price(d.GetPriceMicros()))
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
