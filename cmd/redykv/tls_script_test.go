package main

import (
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redykv/redykv/internal/selfsigned"
)

// cmdCertificate makes NAME.cert, a self-signed certificate for 127.0.0.1, and NAME.key.
func cmdCertificate(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, "certificate NAME")
	c, err := selfsigned.New()
	ts.Check(err)
	ts.Check(c.Write(ts.MkAbs(args[0]+".cert"), ts.MkAbs(args[0]+".key")))
}
