package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/manager/access"
)

// newAnswerCmd returns a command that asks a manager and prints its answer: as JSON with --json,
// otherwise by text. A is a message.
func newAnswerCmd[A any](use, short string, args cobra.PositionalArgs,
	ask func(ctx context.Context, m access.Client, args []string) (*connect.Response[A], error),
	text func(out io.Writer, answer *A) error,
) *cobra.Command {
	var at managerFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  usageArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := at.client()
			if err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), client, args)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), any(answer.Msg).(proto.Message))
			}
			return text(cmd.OutOrStdout(), answer.Msg)
		},
	}
	at.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the manager's answer as JSON, in the format of its API")
	return cmd
}

func printJSON(out io.Writer, m proto.Message) error {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	var text bytes.Buffer // protojson varies its white space
	if err := json.Indent(&text, raw, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, &text)
	return err
}

// table writes rows of tab-separated cells in columns.
func table(w io.Writer, head string, rows func(*tabwriter.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	rows(t)
	return t.Flush()
}

// timeText formats a Unix time in milliseconds.
func timeText(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339) }
