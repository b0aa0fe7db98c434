package blackbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// network has a network namespace for each node, and one with a bridge between them. Nodes
// can be cut off.
type network struct {
	prefix string
	nodes  []string
}

// newNetwork makes a network that lasts until the test ends. An error says why that is
// impossible.
func newNetwork(t *testing.T, nodes ...string) (n *network, err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can make network namespaces")
	}
	n = &network{fmt.Sprintf("redykv-%d-", os.Getpid()), nodes}
	t.Cleanup(func() {
		for _, node := range append([]string{"bridge"}, nodes...) {
			if _, err := os.Stat(n.file(node)); err == nil {
				if _, err := Run(context.Background(), "ip", "netns", "del", n.prefix+node); err != nil {
					t.Error(err)
				}
			}
		}
	})
	ip := func(args ...string) {
		if err == nil {
			_, err = Run(t.Context(), append([]string{"ip"}, args...)...)
		}
	}
	bridge := n.prefix + "bridge"
	ip("netns", "add", bridge)
	ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
	ip("-n", bridge, "link", "set", "bridge", "up")
	for _, node := range nodes {
		ns := n.prefix + node
		ip("netns", "add", ns)
		ip("-n", bridge, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", ns)
		ip("-n", bridge, "link", "set", node, "master", "bridge", "up")
		ip("-n", ns, "addr", "add", n.address(node)+"/24", "dev", "eth0")
		ip("-n", ns, "link", "set", "eth0", "up")
		ip("-n", ns, "link", "set", "lo", "up")
	}
	return n, err
}

func (n *network) file(node string) string { return filepath.Join("/run/netns", n.prefix+node) }

// address returns a node's address, in a network that nothing else uses.
func (n *network) address(node string) string {
	for i, name := range n.nodes {
		if name == node {
			return fmt.Sprintf("10.99.0.%d", i+1)
		}
	}
	panic("no node " + node)
}

// at returns the command line of a program that runs at a node. Unlike ip netns exec,
// nsenter makes no mount namespace, which would keep other tests' disks mounted.
func (n *network) at(node string, argv ...string) []string {
	return append([]string{"nsenter", "--net=" + n.file(node)}, argv...)
}

// link sets a node's link to the others up or down.
func (n *network) link(ctx context.Context, node, state string) error {
	_, err := Run(ctx, "ip", "-n", n.prefix+"bridge", "link", "set", node, state)
	return err
}

// deafen makes a node ignore the packets of another one, which still receives its packets.
// Without nft it cuts the node off.
func (n *network) deafen(ctx context.Context, node, to string) error {
	rules := fmt.Sprintf("table inet cut { chain input { type filter hook input priority 0; ip saddr %s drop; }; }", n.address(to))
	if _, err := Run(ctx, n.at(node, "nft", rules)...); err != nil {
		return n.link(ctx, node, "down")
	}
	return nil
}

// heal ends all faults of a node.
func (n *network) heal(ctx context.Context, node string) error {
	_, _ = Run(ctx, n.at(node, "nft", "flush", "ruleset")...) // fails without nft
	return n.link(ctx, node, "up")
}

// dial returns a function that connects to an address from a node.
func (n *network) dial(node, addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (conn net.Conn, err error) {
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, own.Close()) }()
		other, err := os.Open(n.file(node))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, other.Close()) }()
		if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
			return nil, os.NewSyscallError("setns", err)
		}
		conn, err = dialer(addr)(ctx)
		if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
			return conn, os.NewSyscallError("setns", back) // on failure the thread stays locked, and ends with its goroutine
		}
		runtime.UnlockOSThread()
		return conn, err
	}
}
