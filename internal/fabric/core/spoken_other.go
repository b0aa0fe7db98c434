//go:build !unix

package core

import "net"

// spoken does not know what a peer has sent: all count as if they had said something.
func spoken(net.Conn) error { return nil }
