package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/kv/resp/acl"
	"github.com/redykv/redykv/manager/access"
)

// listenFlags are the flags for the addresses of serve, TLS and users.
type listenFlags struct {
	addr, tlsAddr string
	cert, key, ca string
	protected     bool
	password      string
	users         []string
	usersFile     string
}

func (f *listenFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.addr, "addr", "127.0.0.1:6380", "address to listen on; empty: only --tls-addr")
	flags.StringVar(&f.tlsAddr, "tls-addr", "", "address to listen on for TLS, with --listen-cert and --listen-key (default: none)")
	flags.StringVar(&f.cert, "listen-cert", "", "`FILE` with the certificate for --tls-addr, in PEM; read again when it changes")
	flags.StringVar(&f.key, "listen-key", "", "`FILE` with the private key of --listen-cert, in PEM")
	flags.StringVar(&f.ca, "listen-client-ca", "", "`FILE` with authorities, in PEM: clients at --tls-addr must show a certificate signed by one of them (default: no client certificates)")
	flags.BoolVar(&f.protected, "protected-mode", true, "reject clients from other machines while the default user has no password")
	flags.StringVar(&f.password, "requirepass", "", "password of the default user; set it in the environment or the file, as other users can see command lines")
	flags.StringArrayVar(&f.users, "user", nil, "`USER` and its rules as in Redis, such as alice on >password ~cache:* +@read; may be given several times")
	flags.StringVar(&f.usersFile, "users-file", "", "`FILE` of users in the format of Redis's ACL files: lines of the word user, a name and rules")
}

func (f *listenFlags) check() error {
	if f.addr == "" && f.tlsAddr == "" {
		return usagef("--addr and --tls-addr are empty: give at least one address to listen on")
	}
	if err := cmp.Or(checkOptional("--addr", f.addr), checkOptional("--tls-addr", f.tlsAddr)); err != nil {
		return err
	}
	switch {
	case f.tlsAddr != "" && (f.cert == "" || f.key == ""):
		return usagef("--tls-addr requires --listen-cert and --listen-key")
	case f.tlsAddr == "" && (f.cert != "" || f.key != "" || f.ca != ""):
		return usagef("--listen-cert, --listen-key and --listen-client-ca require --tls-addr")
	}
	_, err := f.access()
	return err
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

// listen opens the listeners.
func (f *listenFlags) listen(ctx context.Context) (listeners []net.Listener, err error) {
	if f.addr != "" {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.addr)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, ln)
	}
	if f.tlsAddr == "" {
		return listeners, nil
	}
	config, err := f.encryption()
	if err != nil {
		return nil, errors.Join(err, closeAll(listeners))
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.tlsAddr)
	if err != nil {
		return nil, errors.Join(err, closeAll(listeners))
	}
	return append(listeners, tls.NewListener(ln, config)), nil
}

// where returns the addresses of the listeners.
func (f *listenFlags) where(listeners []net.Listener) string {
	var at []string
	for i, ln := range listeners {
		where := ln.Addr().String()
		if i == len(listeners)-1 && f.tlsAddr != "" {
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
