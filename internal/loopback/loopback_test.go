package loopback

import (
	"net"
	"testing"
)

// TestFreeAddress has addresses that differ, and at which a server can listen.
func TestFreeAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 2 * each {
		address, err := FreeAddress()
		if err != nil || seen[address] {
			t.Fatalf("%q, again %v: %v", address, seen[address], err)
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
}
