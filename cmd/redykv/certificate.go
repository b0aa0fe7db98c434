package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/manager/access"
)

// certificateFile is a certificate that is renewed by writing its files again.
type certificateFile struct {
	cert, key string

	mu      sync.Mutex // guards what follows
	current *tls.Certificate
	written time.Time // when the files that it is from were, the later of the two
}

// get is for tls.Config. As long as new files do not fit together, the certificate
// before is shown.
func (c *certificateFile) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var written time.Time
	for _, file := range []string{c.cert, c.key} {
		if at, err := os.Stat(file); err == nil && at.ModTime().After(written) {
			written = at.ModTime()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && written.Equal(c.written) {
		return c.current, nil
	}
	fresh, err := tls.LoadX509KeyPair(c.cert, c.key)
	switch {
	case err == nil:
		c.current, c.written = &fresh, written
	case c.current == nil:
		return nil, err
	}
	return c.current, nil
}

// askCallers has a server ask for certificates that the authorities in a file have
// signed: config's ClientCAs, until the file is renewed. As long as it cannot be read,
// what it said last holds.
func askCallers(config *tls.Config, file string) {
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.NextProtos = []string{"h2", "http/1.1"} // net/http sets them on a copy of its own
	base := config.Clone()
	var last atomic.Pointer[x509.CertPool]
	last.Store(config.ClientCAs)
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if now, err := access.ReadCertificates(file); err == nil {
			last.Store(now)
		}
		c := base.Clone()
		c.ClientCAs = last.Load()
		return c, nil
	}
}
