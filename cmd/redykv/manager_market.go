package main

import (
	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/plan"
)

type marketFlags struct {
	at        managerFlag
	request   managerv1.ChangeMarketRequest
	price     float64
	available int32
}

func newMarketCmd() *cobra.Command {
	f := new(marketFlags)
	cmd := &cobra.Command{
		Use:   "market",
		Short: "Change the simulated market of a running manager",
		Long: `Sets the price of a VM type, or the number of VMs that are available, on the market
of a manager that was started with --menu; or ends one of its VMs, with the notice
of its type (--reclaim) or without (--fail).`,
		Example: `  redykv manager market --type lean-2g --spot --price 0.02 --available 3
  redykv manager market --reclaim vm-ABC`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runMarket(cmd, f) },
	}
	flags := cmd.Flags()
	f.at.add(flags)
	flags.StringVar(&f.request.Type, "type", "", "VM type")
	flags.BoolVar(&f.request.Spot, "spot", false, "change the type's spot VMs")
	flags.StringVar(&f.request.CloudRegion, "cloud-region", "", "region of the cloud (default: the manager's)")
	flags.Uint32Var(&f.request.Distance, "distance", 0, "distance of the VMs from clients, in switches (default: all)")
	flags.Float64Var(&f.price, "price", 0, "price in dollars an hour")
	flags.Int32Var(&f.available, "available", 0, "number of VMs that can be launched; negative: no limit")
	flags.StringVar(&f.request.FailVm, "fail", "", "id of a VM to end without notice")
	flags.StringVar(&f.request.ReclaimVm, "reclaim", "", "id of a VM to reclaim")
	return cmd
}

func runMarket(cmd *cobra.Command, f *marketFlags) error {
	named := 0
	for _, flag := range []string{"type", "fail", "reclaim"} {
		if cmd.Flags().Changed(flag) {
			named++
		}
	}
	if named != 1 {
		return usagef("want one of --type, --fail and --reclaim")
	}
	if cmd.Flags().Changed("price") {
		if !(f.price >= 0 && f.price <= plan.MaxPrice.Dollars()) {
			return usagef("--price %v: want 0 to %v", f.price, plan.MaxPrice.Dollars())
		}
		micros := int64(plan.Dollars(f.price))
		f.request.PriceMicros = &micros
	}
	if cmd.Flags().Changed("available") {
		f.request.Available = &f.available
	}
	client, err := f.at.client()
	if err != nil {
		return err
	}
	_, err = client.ChangeMarket(cmd.Context(), connect.NewRequest(&f.request))
	return err
}
