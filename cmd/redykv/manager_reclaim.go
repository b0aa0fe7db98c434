package main

import (
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/node"
)

type reclaimFlags struct {
	manager managerFlag
	vm      string
	notice  time.Duration
	reason  string
}

func newReclaimCmd() *cobra.Command {
	var f reclaimFlags
	cmd := &cobra.Command{
		Use:   "reclaim",
		Short: "Announce to a running manager that a VM goes",
		Long: `Tells a manager that a VM goes when the notice is up. Its caches are told at
once, so that they can move away, and it is given to no other. When the notice
is up it is taken for failed, and terminated if the manager launched it. One that
was started by hand has to be stopped by then: if its cache server still runs, it
registers as a new one.`,
		Example: `  redykv manager reclaim --manager http://10.0.0.1:7070 --vm server-1 --notice 2m`,
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runReclaim(cmd, f) },
	}
	flags := cmd.Flags()
	f.manager.add(flags)
	flags.StringVar(&f.vm, "vm", "", "id of the VM (required)")
	flags.DurationVar(&f.notice, "notice", 30*time.Second, "time until it goes")
	flags.StringVar(&f.reason, "reason", "", "what its caches are told")
	return cmd
}

func runReclaim(cmd *cobra.Command, f reclaimFlags) error {
	if f.vm == "" {
		return usagef("--vm: want the id of a VM")
	}
	if f.notice < 0 || f.notice > node.MaxNotice {
		return usagef("--notice %v: want 0 to %v", f.notice, node.MaxNotice)
	}
	mgr, err := f.manager.client()
	if err != nil {
		return err
	}
	r, err := mgr.Reclaim(cmd.Context(), connect.NewRequest(&managerv1.ReclaimRequest{
		VmId: f.vm, NoticeMs: f.notice.Milliseconds(), Reason: f.reason,
	}))
	if err != nil {
		return fmt.Errorf("reclaim VM %s: %w", f.vm, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "VM %s goes at %s\n", f.vm, time.UnixMilli(r.Msg.GetDeadlineUnixMs()).UTC().Format(time.RFC3339))
	return nil
}
