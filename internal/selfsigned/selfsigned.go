// Package selfsigned makes certificates for connections within one machine, for tests and measurements.
package selfsigned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// Name is the common name of certificates.
const Name = "redykv"

// Certificate is valid for a day for both sides of connections to 127.0.0.1 and localhost.
type Certificate struct {
	tls.Certificate
	// Authority has the certificate as the only authority.
	Authority *x509.CertPool
}

// New makes a certificate.
func New() (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: Name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	c := &Certificate{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, x509.NewCertPool()}
	c.Authority.AddCert(leaf)
	return c, nil
}

// Write writes the certificate and its key to files, in PEM.
func (c *Certificate) Write(cert, key string) error {
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: c.Certificate.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
	}
	return nil
}
