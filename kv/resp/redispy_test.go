package resp_test

import (
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/kv/resp/acl"
)

// TestRedisPy: redis-py's commands about users, notifications, tracking and bits work.
func TestRedisPy(t *testing.T) {
	const python = "/usr/bin/python3" // which has Debian's python3-redis
	if exec.Command(python, "-c", "import redis").Run() != nil {
		t.Skip("there is no python3-redis here")
	}
	quietly := slog.New(slog.DiscardHandler)
	st, err := kv.Open(kv.Options{Device: device.NewMemory(), Memory: 16 << 20, Records: 1 << 12, CountKeys: true, KeyClass: resp.KeyClass, Logger: quietly})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := resp.NewServer(st, resp.Options{Users: acl.New(), Logger: quietly})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "testdata/redispy.py", port).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "passed\n") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, err := range []error{s.Close(), testrun.Receive(t, "Serve ends", served), st.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}
