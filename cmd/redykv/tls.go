package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/manager/access"
)

// tlsFlags are the flags for TLS between caches and cache servers, over the tcp transport and
// to the servers' control APIs. Both sides show a certificate and verify the other's.
type tlsFlags struct{ cert, key, ca string }

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "tls-cert", "", "`FILE` with this side's certificate, in PEM: encrypts the connections of caches over tcp and to the control APIs of cache servers; each side verifies the other")
	flags.StringVar(&f.key, "tls-key", "", "`FILE` with the private key of --tls-cert, in PEM")
	flags.StringVar(&f.ca, "tls-ca", "", "`FILE` with the authorities that verify the other side's certificate, in PEM")
}

// config returns the TLS configuration; nil without flags.
func (f *tlsFlags) config() (*tls.Config, error) {
	if *f == (tlsFlags{}) {
		return nil, nil
	}
	if f.cert == "" || f.key == "" || f.ca == "" {
		return nil, usagef("--tls-cert, --tls-key and --tls-ca must be given together")
	}
	certificate, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s --tls-key %s: %w", f.cert, f.key, err)
	}
	authorities, err := access.ReadCertificates(f.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		RootCAs:      authorities, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
	}, nil
}

// command returns the program that a manager starts as a cache server with the same flags.
// Without flags it returns nil, the manager's default.
func (f *tlsFlags) command() ([]string, error) {
	if *f == (tlsFlags{}) {
		return nil, nil
	}
	if _, err := f.config(); err != nil { // fail now, not with the first cache
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("path of this program: %w", err)
	}
	command := []string{self, "cacheserver"}
	for _, flag := range []struct{ name, file string }{{"--tls-cert", f.cert}, {"--tls-key", f.key}, {"--tls-ca", f.ca}} {
		file, err := filepath.Abs(flag.file)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag.name, flag.file, err)
		}
		command = append(command, flag.name, file)
	}
	return command, nil
}
