package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/kv/resp/acl"
	"github.com/redykv/redykv/manager/access"
)

// listenFlags are the flags for the addresses of serve, TLS and users.
type listenFlags struct {
	addrs, tlsAddrs []string // see addresses
	cert, key, ca   string
	protected       bool
	password        string
	users           []string
	usersFile       string
}

// listener is an open listener of serve.
type listener struct {
	net.Listener
	encrypted bool
}

// addresses returns the addresses of a flag: those of all its values, separated by commas.
func addresses(values []string) (addrs []string) {
	for _, value := range values {
		for addr := range strings.SplitSeq(value, ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

// mayLack returns an address without a leading -, and whether it had one: it is skipped on a machine
// that does not have it.
func mayLack(addr string) (string, bool) { return strings.CutPrefix(addr, "-") }

func (f *listenFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.addrs, "addr", []string{"127.0.0.1:6380", "-[::1]:6380"}, "`ADDRESSES` to listen on, separated by commas or given several times; one that begins with - is skipped on a machine that does not have it, as in Redis; empty: only --tls-addr")
	flags.StringArrayVar(&f.tlsAddrs, "tls-addr", nil, "`ADDRESSES` to listen on for TLS, as for --addr, with --listen-cert and --listen-key (default: none)")
	flags.StringVar(&f.cert, "listen-cert", "", "`FILE` with the certificate for --tls-addr, in PEM; read again when it changes")
	flags.StringVar(&f.key, "listen-key", "", "`FILE` with the private key of --listen-cert, in PEM")
	flags.StringVar(&f.ca, "listen-client-ca", "", "`FILE` with authorities, in PEM: clients at --tls-addr must show a certificate signed by one of them (default: no client certificates)")
	flags.BoolVar(&f.protected, "protected-mode", true, "reject clients from other machines while the default user has no password")
	flags.StringVar(&f.password, "requirepass", "", "password of the default user; set it in the environment or the file, as other users can see command lines")
	flags.StringArrayVar(&f.users, "user", nil, "`USER` and its rules as in Redis, such as alice on >password ~cache:* +@read; may be given several times")
	flags.StringVar(&f.usersFile, "users-file", "", "`FILE` of users in the format of Redis's ACL files: lines of the word user, a name and rules")
}

func (f *listenFlags) check() error {
	plain, encrypted := addresses(f.addrs), addresses(f.tlsAddrs)
	if len(plain)+len(encrypted) == 0 {
		return usagef("--addr and --tls-addr are empty: give at least one address to listen on")
	}
	if err := cmp.Or(checkAddresses("--addr", plain), checkAddresses("--tls-addr", encrypted)); err != nil {
		return err
	}
	if len(encrypted) > 0 && (f.cert == "" || f.key == "") {
		return usagef("--tls-addr requires --listen-cert and --listen-key")
	}
	_, err := f.access()
	return err
}

func checkAddresses(flag string, addrs []string) error {
	for _, addr := range addrs {
		addr, _ = mayLack(addr)
		if err := checkListen(flag, addr); err != nil {
			return err
		}
	}
	return nil
}

// access returns the users of the server. Without flags, that is the default user, who may do
// everything and needs no password.
func (f *listenFlags) access() (resp.Users, error) {
	users := acl.New()
	if f.usersFile != "" {
		if err := users.AddFile(f.usersFile); err != nil {
			return nil, fmt.Errorf("--users-file: %w", err)
		}
	}
	for _, line := range f.users {
		if err := users.Add(line); err != nil {
			return nil, usagef("--user: %w", err)
		}
	}
	if f.password != "" {
		users.Require(f.password)
	}
	return users, nil
}

// listen opens the listeners: the plain ones, and then those for TLS.
func (f *listenFlags) listen(ctx context.Context, log *slog.Logger) (listeners []listener, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(listeners))
		}
	}()
	for _, addr := range addresses(f.addrs) {
		if listeners, err = listenAt(ctx, listeners, addr, nil, log); err != nil {
			return listeners, err
		}
	}
	encrypted := addresses(f.tlsAddrs)
	if len(encrypted) > 0 {
		config, err := f.encryption()
		if err != nil {
			return listeners, err
		}
		for _, addr := range encrypted {
			if listeners, err = listenAt(ctx, listeners, addr, config, log); err != nil {
				return listeners, err
			}
		}
	}
	if len(listeners) == 0 {
		return nil, errors.New("this machine has none of the addresses of --addr and --tls-addr")
	}
	return listeners, nil
}

// listenAt adds a listener, with TLS if there is a configuration. It skips an address that this
// machine may lack, and does.
func listenAt(ctx context.Context, listeners []listener, addr string, config *tls.Config, log *slog.Logger) ([]listener, error) {
	addr, may := mayLack(addr)
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case may && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
		log.Info("this machine does not have an address to listen on, skipped", "address", addr, "err", err)
		return listeners, nil
	case err != nil:
		return listeners, err
	case config != nil:
		ln = tls.NewListener(ln, config)
	}
	return append(listeners, listener{ln, config != nil}), nil
}

// where returns the addresses of the listeners.
func where(listeners []listener) string {
	var at []string
	for _, ln := range listeners {
		where := ln.Addr().String()
		if ln.encrypted {
			where += " (TLS)"
		}
		at = append(at, where)
	}
	return strings.Join(at, " and ")
}

// encryption returns the TLS configuration for --tls-addr.
func (f *listenFlags) encryption() (*tls.Config, error) {
	c := &certificateFile{cert: f.cert, key: f.key}
	if _, err := c.get(nil); err != nil {
		return nil, fmt.Errorf("--listen-cert: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
	if f.ca != "" {
		authorities, err := access.ReadCertificates(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--listen-client-ca: %w", err)
		}
		config.ClientCAs, config.ClientAuth = authorities, tls.RequireAndVerifyClientCert
	}
	return config, nil
}
