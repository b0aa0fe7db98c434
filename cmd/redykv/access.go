package main

import (
	"cmp"
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
	flags.StringVar(&f.token, "manager-token", "", "`FILE` with the token for the manager (default: the token in $"+access.TokenEnv+", if set)")
	flags.StringVar(&f.ca, "manager-ca", "", "`FILE` with the certificates that verify the manager, in PEM (default: the file in $"+access.CAEnv+", or the system's certificates)")
}

// dial returns a client of the manager, with the credentials of the flags and the environment.
func (f accessFlags) dial(url string) (access.Client, error) {
	a := access.FromEnv()
	a.CA = cmp.Or(f.ca, a.CA)
	if f.token != "" {
		text, err := os.ReadFile(f.token)
		if err != nil {
			return nil, fmt.Errorf("--manager-token: %w", err)
		}
		if a.Token = strings.TrimSpace(string(text)); a.Token == "" {
			return nil, usagef("--manager-token %s: the file is empty", f.token)
		}
	}
	return access.DialWith(url, a)
}

// managerFlag has the URL of a running manager and the access to it.
type managerFlag struct {
	url    string
	access accessFlags
}

func (f *managerFlag) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "manager", "http://127.0.0.1:7070", "`URL` of the manager, or those of several, separated by commas: the leader is called")
	f.access.add(flags)
}

func (f managerFlag) client() (access.Client, error) {
	if err := checkURLs("--manager", f.url); err != nil {
		return nil, err
	}
	return f.access.dial(f.url)
}

// guardFlags are the flags that decide which callers an API accepts: that of a manager, or of a
// proxy.
type guardFlags struct {
	cert     string
	key      string
	clientCA string
	tokens   string
	insecure bool
}

func (f *guardFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "api-cert", "", "`FILE` with the certificate of the API, in PEM: serves the API over TLS; the file is read again when it changes")
	flags.StringVar(&f.key, "api-key", "", "`FILE` with the private key of --api-cert, in PEM")
	flags.StringVar(&f.clientCA, "api-client-ca", "", "`FILE` with authorities, in PEM: callers must show a certificate signed by one of them")
	flags.StringVar(&f.tokens, "tokens", "", "`FILE` with the tokens that are accepted, one per line: a name, roles (client, server, operator), expiry (never, or 2030-12-31T00:00:00Z), and the token")
	flags.BoolVar(&f.insecure, "insecure", false, "accept calls without TLS and tokens at an address that other machines can reach")
}

// check checks the flags against the address.
func (f guardFlags) check(listen string) error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usagef("--api-cert and --api-key must be given together")
	case f.clientCA != "" && f.cert == "":
		return usagef("--api-client-ca requires --api-cert")
	case !f.insecure && (f.cert == "" || f.tokens == "") && !access.Loopback(listen):
		return usagef("--listen %s can be reached from other machines: it requires --api-cert and --tokens, or --insecure", listen)
	}
	return nil
}

// tokenSet returns a function that returns the present tokens; nil without a file.
func (f guardFlags) tokenSet(log *slog.Logger) (func() *access.TokenSet, error) {
	if f.tokens == "" {
		return nil, nil
	}
	file, err := access.OpenTokenFile(f.tokens, log)
	if err != nil {
		return nil, err
	}
	return file.Tokens, nil
}

// encryption returns the TLS configuration of the API; nil without a certificate.
func (f guardFlags) encryption() (*tls.Config, error) {
	if f.cert == "" {
		return nil, nil
	}
	file := &certificateFile{cert: f.cert, key: f.key}
	if _, err := file.get(nil); err != nil {
		return nil, fmt.Errorf("--api-cert: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: file.get}
	if f.clientCA != "" {
		authorities, err := access.ReadCertificates(f.clientCA)
		if err != nil {
			return nil, fmt.Errorf("--api-client-ca: %w", err)
		}
		config.ClientCAs = authorities
		requireClientCertificates(config, f.clientCA)
	}
	return config, nil
}

// apply reads the files and sets opts. launches means that the manager starts servers.
func (f guardFlags) apply(opts *manager.Options, launches bool, log *slog.Logger) (err error) {
	if opts.Tokens, err = f.tokenSet(log); err != nil {
		return err
	}
	opts.Access.Insecure = f.insecure
	if opts.TLS, err = f.encryption(); err != nil || opts.TLS == nil {
		return err
	}
	// Servers on this machine verify the manager by its own certificate.
	opts.Access.CA = f.cert
	if f.clientCA == "" {
		return nil
	}
	if launches {
		cert, err := opts.TLS.GetCertificate(nil)
		if err != nil {
			return fmt.Errorf("--api-cert: %w", err)
		}
		if err := checkClientCertificate(cert, opts.TLS.ClientCAs); err != nil {
			return fmt.Errorf("--api-client-ca %s: servers started by the manager present --api-cert %s, which these authorities reject: %w", f.clientCA, f.cert, err)
		}
	}
	opts.Access.Cert, opts.Access.Key = f.cert, f.key
	return nil
}

// checkClientCertificate returns an error if authorities would reject a client with the certificate:
// another authority signed it, or it is for servers only.
func checkClientCertificate(cert *tls.Certificate, authorities *x509.CertPool) error {
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
