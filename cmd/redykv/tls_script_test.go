package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCertificate makes NAME.cert, a self-signed certificate for 127.0.0.1, and NAME.key.
func cmdCertificate(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "certificate NAME")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: args[0]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	for suffix, block := range map[string]*pem.Block{
		".cert": {Type: "CERTIFICATE", Bytes: certificate}, ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+suffix), pem.EncodeToMemory(block), 0o600))
	}
}
