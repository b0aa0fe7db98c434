//go:build !race

// The race detector has memory of its own, and copies large values slowly.
package resp

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// statusOf returns a field of this process's status in bytes.
func statusOf(t *testing.T, field string) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no %s", field)
	return 0
}

// TestMemoryOfLargeReplies: clients that ask for a large value many times at once, and read all replies,
// take no more memory than some of the values. Without bounds the process takes 5 GiB.
func TestMemoryOfLargeReplies(t *testing.T) {
	const size, times, clients, most = 15 << 20, 63, 4, 1 << 30
	value := strings.Repeat("v", size)
	reply := int64(times * len(fmt.Sprintf("$%d\r\n%s\r\n", size, value)))
	for name, tc := range map[string]struct {
		commands string
		reply    int64
	}{
		"MGET":         {encode(append([]string{"MGET"}, strings.Fields(strings.Repeat("big ", times))...)...), reply + int64(len(fmt.Sprintf("*%d\r\n", times)))},
		"pipelined":    {strings.Repeat(encode("GET", "big"), times), reply},
		"some at once": {strings.Repeat(encode("MGET", "big", "big", "big"), times/3), reply + times/3*4},
	} {
		t.Run(name, func(t *testing.T) {
			store := inMemory()
			store.Memory = 512 << 20 // with pages that hold the value
			_, addr := start(t, store, Options{Sessions: 8})
			if got := dial(t, addr).do("SET", "big", value); got != "+OK" {
				t.Fatal(got)
			}
			debug.FreeOSMemory()
			if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
				t.Skipf("the peak of memory cannot be reset: %v", err)
			}
			before := statusOf(t, "VmRSS")
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					conn, err := net.Dial("tcp", addr)
					if err == nil {
						defer func() { _ = conn.Close() }()
						err = conn.SetDeadline(time.Now().Add(testrun.Patience(testrun.Bound)))
					}
					if err == nil {
						_, err = io.WriteString(conn, tc.commands)
					}
					if err == nil {
						_, err = io.CopyN(io.Discard, conn, tc.reply)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if grown := statusOf(t, "VmHWM") - before; grown > most {
				t.Errorf("the process has grown by %d MiB, want at most %d", grown>>20, most>>20)
			} else {
				t.Logf("grown by %d MiB", grown>>20)
			}
		})
	}
}
