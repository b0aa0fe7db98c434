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
		Short: "Announce to a running manager that a VM will end",
		Long: `Announces that a VM will end when the notice has passed. Its caches are notified at
once, so that they can move away, and it gets no new ones. When the notice has
passed, the VM counts as failed, and is terminated if the manager launched it. A
cache server that was started by hand must be stopped by then: if it still runs, it
registers as a new one.`,
		Example: `  redykv manager reclaim --manager http://10.0.0.1:7070 --vm server-1 --notice 2m`,
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runReclaim(cmd, f) },
	}
	flags := cmd.Flags()
	f.manager.add(flags)
	flags.StringVar(&f.vm, "vm", "", "id of the VM (required)")
	flags.DurationVar(&f.notice, "notice", 30*time.Second, "time until the VM ends")
	flags.StringVar(&f.reason, "reason", "", "reason that is reported to its caches")
	return cmd
}

func runReclaim(cmd *cobra.Command, f reclaimFlags) error {
	if f.vm == "" {
		return usagef("--vm is missing: name the id of a VM")
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
	fmt.Fprintf(cmd.OutOrStdout(), "VM %s ends at %s\n", f.vm, timeText(r.Msg.GetDeadlineUnixMs()))
	return nil
}
