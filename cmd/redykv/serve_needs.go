package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// need is a setting without which some flags do nothing.
type need struct {
	met   bool
	what  string
	flags []string
}

// needs returns what flags of serve need. --manager-ca is not among them: its environment variable is
// that of all commands that call a manager.
func (f *serveFlags) needs() []need {
	s, d := &f.storage, &f.durability
	return []need{
		{s.kind == storageSSD, "--storage ssd", []string{
			"redy", "bucket", "block-cache", "verify", "recycle", "forget-lost-commits",
			"checkpoint-kind", "checkpoint-every-bytes", "checkpoint-every", "checkpoint-keep",
		}},
		{s.redy != redyNone, "--redy", []string{"cache", "transport", "refill-rate", "commit-point"}},
		{s.fromManager(), "the address of a manager in --redy", []string{
			"cache-duration", "cache-linger", "machine", "cloud-region", "manager-token", "tls-cert", "tls-key", "tls-ca",
		}},
		{s.bucket != "", "--bucket", []string{"bucket-every", "bucket-only-writer"}},
		{d.checkpoints.Every != 0 || d.every != 0, "--checkpoint-every-bytes or --checkpoint-every", []string{"checkpoint-kind", "checkpoint-keep"}},
		{d.compaction.DeadShare != 0 || d.size != 0, "--compact-dead or --compact-size", []string{"compact-share"}},
		{s.maxData == 0, "a server without --max-data, which evicts keys instead of compacting", []string{"compact-dead", "compact-size", "compact-share"}},
		{len(addresses(f.listen.tlsAddrs)) > 0, "--tls-addr", []string{"listen-cert", "listen-key", "listen-client-ca"}},
	}
}

// checkNeeds returns an error for flags that are set and do nothing. A flag with its default is not set, as
// --print-config prints the defaults too; nor is one that is 0, as what it would turn off is off.
func checkNeeds(flags *pflag.FlagSet, needs []need) error {
	for _, n := range needs {
		if n.met {
			continue
		}
		var idle []string
		for _, name := range n.flags {
			flag := flags.Lookup(name)
			if value := flag.Value.String(); value != flag.DefValue && !slices.Contains([]string{"0", "0s", "0B"}, value) {
				idle = append(idle, "--"+name)
			}
		}
		switch len(idle) {
		case 0:
		case 1:
			return usagef("%s requires %s", idle[0], n.what)
		default:
			last := len(idle) - 1
			return usagef("%s and %s require %s", strings.Join(idle[:last], ", "), idle[last], n.what)
		}
	}
	return nil
}
