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

// certificateFile is a certificate that is reloaded when its files change.
type certificateFile struct {
	cert, key string

	mu      sync.Mutex // guards current and written
	current *tls.Certificate
	written time.Time // the later modification time of the two files when current was read
}

// get implements tls.Config.GetCertificate. If new files do not match or cannot be read, it
// returns the previous certificate.
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
	renewed, err := tls.LoadX509KeyPair(c.cert, c.key)
	switch {
	case err == nil:
		c.current, c.written = &renewed, written
	case c.current == nil:
		return nil, err
	}
	return c.current, nil
}

// requireClientCertificates makes a server require client certificates signed by the
// authorities in file, which is read again for each connection. If it cannot be read, the last
// authorities remain valid; the first are config's ClientCAs.
func requireClientCertificates(config *tls.Config, file string) {
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.NextProtos = []string{"h2", "http/1.1"} // net/http sets them only on its copy of config
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
