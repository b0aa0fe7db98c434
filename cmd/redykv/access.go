package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
)

// accessFlags are the flags for access to a manager's control API.
type accessFlags struct {
	token string // path of the file
	ca    string
}

func (f *accessFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.token, "manager-token", "", "`FILE` with the token for the manager (default: what $"+access.TokenEnv+" says, or none)")
	flags.StringVar(&f.ca, "manager-ca", "", "`FILE` with the certificates by which the manager is known (default: what $"+access.CAEnv+" says, or the system's)")
}

// access returns the credentials from the flags and the environment.
func (f accessFlags) access() (access.Credentials, error) {
	a := access.FromEnv()
	if f.ca != "" {
		a.CA = f.ca
	}
	if f.token != "" {
		text, err := os.ReadFile(f.token)
		if err != nil {
			return a, fmt.Errorf("--manager-token: %w", err)
		}
		if a.Token = strings.TrimSpace(string(text)); a.Token == "" {
			return a, usagef("--manager-token %s: the file is empty", f.token)
		}
	}
	return a, nil
}

// dial returns a client of the manager.
func (f accessFlags) dial(url string) (access.Client, error) {
	a, err := f.access()
	if err != nil {
		return nil, err
	}
	return access.DialWith(url, a)
}

// managerFlag has the URL of a running manager and the access to it.
type managerFlag struct {
	url    string
	access accessFlags
}

func (f *managerFlag) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "manager", "http://127.0.0.1:7070", "`URL` of the manager")
	f.access.add(flags)
}

func (f managerFlag) client() (access.Client, error) {
	if err := checkURL("--manager", f.url); err != nil {
		return nil, err
	}
	return f.access.dial(f.url)
}

// guardFlags are the flags that decide which clients a manager accepts.
type guardFlags struct {
	cert     string
	key      string
	clientCA string
	tokens   string
	insecure bool
}

func (f *guardFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "api-cert", "", "`FILE` with the certificate of the control API, which is served over TLS then; it may be renewed in its place")
	flags.StringVar(&f.key, "api-key", "", "`FILE` with the key of --api-cert")
	flags.StringVar(&f.clientCA, "api-client-ca", "", "`FILE` with the certificates that have to have signed those of callers")
	flags.StringVar(&f.tokens, "tokens", "", "`FILE` with the tokens that callers need: on each line a name, roles (client, server, operator), when it expires (never, or 2030-12-31T00:00:00Z), and the token")
	flags.BoolVar(&f.insecure, "insecure", false, "let anybody in who reaches an address that is not this machine's alone")
}

// check checks the flags against the address.
func (f guardFlags) check(listen string) error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usagef("--api-cert and --api-key go together")
	case f.clientCA != "" && f.cert == "":
		return usagef("--api-client-ca takes --api-cert")
	case !f.insecure && (f.cert == "" || f.tokens == "") && !access.Loopback(listen):
		return usagef("--listen %s can be reached from other machines: that takes --api-cert and --tokens, or --insecure", listen)
	}
	return nil
}

// apply reads the files and sets opts. launches means that the manager starts servers.
func (f guardFlags) apply(opts *manager.Options, launches bool, log *slog.Logger) error {
	if f.tokens != "" {
		tokens, err := access.OpenTokenFile(f.tokens, log)
		if err != nil {
			return err
		}
		opts.Tokens = tokens.Tokens
	}
	opts.Access.Insecure = f.insecure
	if f.cert == "" {
		return nil
	}
	file := &certificateFile{cert: f.cert, key: f.key}
	cert, err := file.get(nil)
	if err != nil {
		return fmt.Errorf("--api-cert: %w", err)
	}
	opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: file.get}
	// Servers on this machine verify the manager by its own certificate.
	opts.Access.CA = f.cert
	if f.clientCA != "" {
		if opts.TLS.ClientCAs, err = access.ReadCertificates(f.clientCA); err != nil {
			return fmt.Errorf("--api-client-ca: %w", err)
		}
		if err := signedFor(cert, opts.TLS.ClientCAs); launches && err != nil {
			return fmt.Errorf("--api-client-ca %s: the servers that a manager starts show it --api-cert %s, with which they would not be let in: %w", f.clientCA, f.cert, err)
		}
		askCallers(opts.TLS, f.clientCA)
		opts.Access.Cert, opts.Access.Key = f.cert, f.key
	}
	return nil
}

// signedFor returns an error if authorities would reject a client with the certificate:
// another authority has signed it, or it is for servers only.
func signedFor(cert *tls.Certificate, authorities *x509.CertPool) error {
	chain := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		chain.AddCert(c)
	}
	_, err := cert.Leaf.Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
