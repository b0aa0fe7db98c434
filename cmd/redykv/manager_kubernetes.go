package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
)

// kubeFlags configure the allocator on Kubernetes.
type kubeFlags struct{ config, kubeconfig string }

func (f *kubeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "kubernetes", "", "`file` with the pools and the pod template of --allocator kubernetes, in YAML")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)")
}

// open returns the allocator.
func (f kubeFlags) open(transport string, log *slog.Logger) (allocator.Allocator, error) {
	config, err := kubernetes.ReadConfig(f.config)
	if err != nil {
		return nil, err
	}
	a, err := kubernetes.New(kubernetes.Options{Config: config, Kubeconfig: f.kubeconfig, Transport: transport, Logger: log})
	if err != nil {
		return nil, err // not a nil *Allocator in an interface
	}
	return a, nil
}

func newManagerCheckCmd() *cobra.Command {
	var kube kubeFlags
	var kind string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for what would keep an allocator from launching VMs",
		Long: `Checks the allocator's configuration, its rights, that each pool has nodes, and that
the API server would take a pod of each pool. It launches nothing, and prints a line
for each fault.`,
		Example: "  redykv manager check --allocator kubernetes --kubernetes pools.yaml",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind != "kubernetes" || kube.config == "" {
				return usagef("want --allocator kubernetes and --kubernetes FILE")
			}
			config, err := kubernetes.ReadConfig(kube.config)
			if err != nil {
				return err
			}
			a, err := kubernetes.New(kubernetes.Options{Config: config, Kubeconfig: kube.kubeconfig})
			if err != nil {
				return err
			}
			if err := errors.Join(a.Check(cmd.Context()), a.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "no faults found")
			return err
		},
	}
	kube.add(cmd.Flags())
	cmd.Flags().StringVar(&kind, "allocator", "kubernetes", "the allocator: kubernetes")
	return cmd
}
