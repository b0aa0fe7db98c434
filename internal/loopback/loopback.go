// Package loopback finds addresses for servers that are started as processes.
package loopback

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// Ports from first on, of which each process tries some before others do. Systems hand out higher
// ones to sockets that ask for any port.
const (
	first = 2048
	ports = 10_000
	each  = 32
)

// tried is the number of ports that this process has tried.
var tried atomic.Uint32

// FreeAddress returns an address of 127.0.0.1 that is free now, and which neither the system nor
// another process soon gives to a server of its own.
func FreeAddress() (string, error) {
	var last error
	for range ports {
		port := first + (uint32(os.Getpid())*each+tried.Add(1))%ports
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		last = err
	}
	return "", fmt.Errorf("loopback: no server can listen at any port from %d to %d: %w", first, first+ports-1, last)
}
