package node

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/manager/api"
)

func TestStartRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, tc := range []struct {
		name string
		opts Options
		want string
	}{
		{"no memory", Options{Transport: "mem"}, "memory 0"},
		{"negative memory", Options{Transport: "mem", Memory: 1 << 63}, "memory 9223372036854775808"},
		{"too much memory", Options{Transport: "mem", Memory: 1 << 50}, "memory of this machine: 1024TiB asked for"},
		{"cores", Options{Transport: "mem", Memory: 1, Cores: 1 << 13}, "8192 cores"},
		{"all interfaces", Options{Transport: "mem", Memory: 1, Listen: ":0"}, "name the interface"},
		{"all interfaces of the fabric", Options{Transport: "tcp", Memory: 1, FabricListen: "0.0.0.0:0"}, "name the interface"},
		{"no address", Options{Transport: "mem", Memory: 1, Listen: "nowhere"}, "missing port"},
		{"port in use", Options{Transport: "mem", Memory: 1, Listen: taken.Addr().String()}, "address already in use"},
		{"transport", Options{Transport: "smoke", Memory: 1}, `unknown transport "smoke"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.opts.Logger = slog.New(slog.DiscardHandler)
			n, err := Start(tc.opts)
			if err == nil {
				t.Fatal(n.Close())
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q, want one with %q", err, tc.want)
			}
		})
	}
}

// Silent sockets do not keep clients out, however many there are: neither of the control API
// nor of the fabric. Where they are more than a node has places, each takes that of an older one.
func TestSilentSockets(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		for _, count := range []int{100, 1000, maxWaiting + 100} {
			t.Run(fmt.Sprint(transport, " ", count), func(t *testing.T) { silentSockets(t, transport, count) })
		}
	}
}

func silentSockets(t *testing.T, name string, count int) {
	n, err := Start(Options{ID: "node", Transport: name, Memory: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	control, err := url.Parse(n.VM().ControlURL)
	if err != nil {
		t.Fatal(err)
	}
	silent := func(network, addr string) (all []net.Conn) {
		for range count {
			c, err := net.Dial(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			all = append(all, c)
		}
		return all
	}
	calling := silent("tcp", control.Host)
	var dialling []net.Conn
	if network := map[string]string{"tcp": "tcp", "verbs": "tcp", "shm": "unixpacket"}[name]; network != "" {
		dialling = silent(network, n.VM().FabricAddr)
	}

	terms := &managerv1.Terms{CacheId: "cache", Grant: "g1", VmId: "node", Regions: 1, RegionSize: 1 << 20}
	client := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, n.VM().ControlURL)
	lent, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{Terms: terms, Token: n.VM().Token(terms)}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := transport.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	hello := redywire.Hello{Ticket: redywire.Ticket(lent.Msg.GetTicket()), Batch: 1, Depth: 1}
	qp, err := p.Dial(t.Context(), lent.Msg.GetFabricAddr(), hello.Encode(), 1)
	if err == nil {
		_, err = qp.Import(t.Context(), [16]byte(lent.Msg.GetRegionTokens()[0]))
	}
	if err != nil {
		t.Error(err)
	}
	const places = 256 // of the fabric's listener
	for _, c := range slices.Concat(calling[:max(0, count-maxWaiting)], dialling[:min(len(dialling), max(0, count-places))]) {
		_, _ = io.Copy(io.Discard, c) // until it is closed
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
