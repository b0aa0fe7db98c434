package main

import (
	"log/slog"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// logFlags are the logging flags of the server commands.
type logFlags struct {
	level  slog.Level
	format string // text or json; "" is text
}

func (l *logFlags) add(flags *pflag.FlagSet) {
	flags.TextVar(&l.level, "log-level", l.level, "lowest level that is logged to standard error: debug, info, warn, error")
}

// addFormat adds the flag --log-format.
func (l *logFlags) addFormat(flags *pflag.FlagSet) {
	flags.StringVar(&l.format, "log-format", "text", "format of the log: text, json")
}

func (l *logFlags) check() error {
	if l.format != "" && l.format != "text" && l.format != "json" {
		return usagef("--log-format %q: want text or json", l.format)
	}
	return nil
}

func (l *logFlags) logger(cmd *cobra.Command) *slog.Logger { return l.loggerAt(cmd, l.level) }

// loggerAt returns a logger with a variable level.
func (l *logFlags) loggerAt(cmd *cobra.Command, level slog.Leveler) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if l.format == "json" {
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), opts))
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), opts))
}

// usageArgs returns check with usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%w; usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// checkListen returns an error for an addr that is not host:port.
func checkListen(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usagef("%s %q: want host:port: %w", flag, addr, err)
	}
	return nil
}

// checkOptional is checkListen for an addr that may be empty.
func checkOptional(flag, addr string) error {
	if addr == "" {
		return nil
	}
	return checkListen(flag, addr)
}

// checkURLs is checkURL for addresses that are separated by commas.
func checkURLs(flag, addrs string) error {
	for addr := range strings.SplitSeq(addrs, ",") {
		if err := checkURL(flag, strings.TrimSpace(addr)); err != nil {
			return err
		}
	}
	return nil
}

// checkURL returns an error for an addr that is neither host:port nor a URL: a server would
// retry a bad one for ever. An empty addr is allowed.
func checkURL(flag, addr string) error {
	if addr == "" {
		return nil
	}
	if !strings.Contains(addr, "://") {
		return checkListen(flag, addr)
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usagef("%s %q: want http://host:port", flag, addr)
	}
	return nil
}

// newGroup returns a command that only has subcommands.
func newGroup(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// parseAll parses each text.
func parseAll[T any](texts []string, parse func(string) (T, error)) (all []T, err error) {
	for _, text := range texts {
		v, err := parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
