package fabrictest

import (
	"crypto/tls"
	"testing"

	"github.com/redykv/redykv/internal/selfsigned"
)

// TLS returns a configuration for both sides of TLS on this host: a certificate for 127.0.0.1
// of a new authority, which is the only trusted one.
func TLS(t testing.TB) *tls.Config {
	t.Helper()
	c, err := selfsigned.New()
	check(t, err)
	return &tls.Config{
		Certificates: []tls.Certificate{c.Certificate},
		RootCAs:      c.Authority, ClientCAs: c.Authority, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
	}
}
