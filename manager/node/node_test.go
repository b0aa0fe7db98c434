package node

import (
	"log/slog"
	"net"
	"strings"
	"testing"
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
