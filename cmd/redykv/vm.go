package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/plan"
)

func newVMCmd() *cobra.Command {
	return newGroup("vm", "Show the VMs of a running manager, and those that it can launch",
		newVMListCmd(), newVMOffersCmd())
}

func newVMListCmd() *cobra.Command {
	return newAnswerCmd("list", "List VMs: those that were launched, and cache servers that registered", cobra.NoArgs,
		func(ctx context.Context, m access.Client, _ []string) (*connect.Response[managerv1.DescribeResponse], error) {
			r, err := m.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{}))
			if err == nil {
				r.Msg = &managerv1.DescribeResponse{Vms: r.Msg.GetVms()}
			}
			return r, err
		},
		func(w io.Writer, r *managerv1.DescribeResponse) error { return printVMs(w, r.GetVms()) })
}

func printVMs(w io.Writer, vms []*managerv1.Vm) error {
	return table(w, "VM\tTYPE\tMEMORY\tFREE\tCORES\tDISTANCE\tPRICE\tSTATE\tMACHINE\tNAME", func(t *tabwriter.Writer) {
		for _, v := range vms {
			fmt.Fprintf(t, "%s\t%s\t%v\t%v\t%d\t%s\t%v\t%s\t%s\t%s\n", v.GetId(), typeText(v), units.Size(v.GetMemory()), units.Size(v.GetFreeMemory()),
				v.GetCores(), distanceText(v.GetDistance()), plan.Price(v.GetPriceMicros()), stateText(v), cmp.Or(v.GetMachine(), "-"), cmp.Or(v.GetName(), "-"))
		}
	})
}

func typeText(v *managerv1.Vm) string {
	if v.GetType() == "" {
		return "-"
	}
	return plan.Offer{Type: v.GetType(), Spot: v.GetSpot()}.Name()
}

func stateText(v *managerv1.Vm) string {
	switch {
	case !v.GetHealthy():
		return "failed"
	case v.GetLeaving():
		return "leaves at " + timeText(v.GetDeadlineUnixMs())
	case v.GetWarm():
		return "warm"
	}
	return "up"
}

func newVMOffersCmd() *cobra.Command {
	var region, machine string
	cmd := newAnswerCmd("offers", "List the VM types that the manager can launch now", cobra.NoArgs,
		func(ctx context.Context, m access.Client, _ []string) (*connect.Response[managerv1.ListOffersResponse], error) {
			return m.ListOffers(ctx, connect.NewRequest(&managerv1.ListOffersRequest{CloudRegion: region, Machine: machine}))
		}, printOffers)
	cmd.Flags().StringVar(&region, "cloud-region", "", "region of the cloud (default: the manager's)")
	cmd.Flags().StringVar(&machine, "machine", "", "`name` of the machine that distances are measured from, such as a node of Kubernetes")
	return cmd
}

func printOffers(w io.Writer, r *managerv1.ListOffersResponse) error {
	err := table(w, "TYPE\tMEMORY\tCORES\tDISTANCE\tPRICE\tAVAILABLE\tWARM\tNOTICE\tWHERE", func(t *tabwriter.Writer) {
		for _, o := range r.GetOffers() {
			memory, available, notice := units.Size(o.GetMemory()).String(), fmt.Sprint(o.GetAvailable()), "-"
			if o.GetMemory() == 0 {
				memory = "any"
			}
			if o.GetAvailable() < 0 {
				available = "any"
			}
			if o.GetSpot() {
				notice = (time.Duration(o.GetNoticeMs()) * time.Millisecond).String()
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%v\t%s\t%d\t%s\t%s\n", plan.Offer{Type: o.GetType(), Spot: o.GetSpot()}.Name(), memory, o.GetCores(),
				distanceText(o.GetDistance()), plan.Price(o.GetPriceMicros()), available, o.GetWarm(), notice, cmp.Or(o.GetNote(), "-"))
		}
	})
	if region := r.GetCloudRegion(); region != "" && err == nil {
		rate := "the rate at which memory leaves a VM was not measured yet"
		if bytes := r.GetMigrationBytesPerSecond(); bytes > 0 {
			rate = fmt.Sprintf("memory leaves a VM at %v/s", units.Size(bytes))
		}
		_, err = fmt.Fprintf(w, "in cloud region %s; %s\n", region, rate)
	}
	return err
}
