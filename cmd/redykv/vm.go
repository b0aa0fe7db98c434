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

func newVMCmd() *cobra.Command {
	return newGroup("vm", "Look at the VMs of a running manager, and at what it could launch",
		newVMListCmd(), newVMOffersCmd())
}

func newVMListCmd() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List VMs: launched ones and servers that registered themselves",
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
			vms := r.Msg.GetVms()
			return f.print(cmd, &managerv1.DescribeResponse{Vms: vms}, func(w io.Writer) error { return printVMs(w, vms) })
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func printVMs(w io.Writer, vms []*managerv1.Vm) error {
	return table(w, "VM\tTYPE\tMEMORY\tFREE\tCORES\tDISTANCE\tPRICE\tSTATE", func(t *tabwriter.Writer) {
		for _, v := range vms {
			fmt.Fprintf(t, "%s\t%s\t%v\t%v\t%d\t%s\t%v\t%s\n", v.GetId(), typeText(v), units.Size(v.GetMemory()), units.Size(v.GetFreeMemory()),
				v.GetCores(), distanceText(v.GetDistance()), plan.Price(v.GetPriceMicros()), stateText(v))
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
		return "leaves at " + time.UnixMilli(v.GetDeadlineUnixMs()).UTC().Format(time.RFC3339)
	case v.GetWarm():
		return "warm"
	}
	return "up"
}

func newVMOffersCmd() *cobra.Command {
	var f listFlags
	var region string
	cmd := &cobra.Command{
		Use:   "offers",
		Short: "List the VM types that the manager could launch now",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client()
			if err != nil {
				return err
			}
			r, err := client.ListOffers(cmd.Context(), connect.NewRequest(&managerv1.ListOffersRequest{CloudRegion: region}))
			if err != nil {
				return err
			}
			return f.print(cmd, r.Msg, func(w io.Writer) error { return printOffers(w, r.Msg) })
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&region, "cloud-region", "", "where (default: the manager's region)")
	return cmd
}

func printOffers(w io.Writer, r *managerv1.ListOffersResponse) error {
	err := table(w, "TYPE\tMEMORY\tCORES\tDISTANCE\tPRICE\tAVAILABLE\tWARM\tNOTICE", func(t *tabwriter.Writer) {
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
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%v\t%s\t%d\t%s\n", plan.Offer{Type: o.GetType(), Spot: o.GetSpot()}.Name(), memory, o.GetCores(),
				distanceText(o.GetDistance()), plan.Price(o.GetPriceMicros()), available, o.GetWarm(), notice)
		}
	})
	if region := r.GetCloudRegion(); region != "" && err == nil {
		rate := "nobody has measured yet how fast memory leaves a VM"
		if bytes := r.GetMigrationBytesPerSecond(); bytes > 0 {
			rate = fmt.Sprintf("memory leaves a VM at %v/s", units.Size(bytes))
		}
		_, err = fmt.Fprintf(w, "in cloud region %s; %s\n", region, rate)
	}
	return err
}
