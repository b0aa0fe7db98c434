package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// listFlags are the flags of commands that print a manager's answer.
type listFlags struct {
	managerFlag
	json bool
}

func (f *listFlags) add(flags *pflag.FlagSet) {
	f.managerFlag.add(flags)
	flags.BoolVar(&f.json, "json", false, "print the manager's answer as JSON, as its API has it")
}

// print prints an answer as JSON if the flag is set, otherwise by text.
func (f *listFlags) print(cmd *cobra.Command, answer proto.Message, text func(io.Writer) error) error {
	if !f.json {
		return text(cmd.OutOrStdout())
	}
	raw, err := protojson.Marshal(answer)
	if err != nil {
		return err
	}
	var out bytes.Buffer // protojson varies its white space
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), &out)
	return err
}
