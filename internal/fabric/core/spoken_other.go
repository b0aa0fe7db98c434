//go:build !unix

package core

import "net"

// spoken reports true: the system does not tell whether a peer has sent data.
func spoken(net.Conn) error { return nil }
