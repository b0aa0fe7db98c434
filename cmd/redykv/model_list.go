package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/redykv/redykv/internal/api/managerv1"
)

func newModelListCmd() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models that a running manager searches, and where they come from",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client()
			if err != nil {
				return err
			}
			r, err := client.ListModels(cmd.Context(), connect.NewRequest(&managerv1.ListModelsRequest{}))
			if err != nil {
				return err
			}
			return f.print(cmd, r.Msg, func(w io.Writer) error { return printModels(w, r.Msg.GetModels()) })
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func printModels(w io.Writer, models []*managerv1.Model) error {
	return table(w, "MODEL\tMEASURED", func(t *tabwriter.Writer) {
		for _, m := range models {
			fmt.Fprintf(t, "%s\t%s\n", m.GetName(), m.GetProvenance())
		}
	})
}
