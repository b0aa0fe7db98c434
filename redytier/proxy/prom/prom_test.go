package prom

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/redykv/redykv/redytier/proxy"
)

type fixed proxy.Metrics

func (f fixed) Metrics() proxy.Metrics { return proxy.Metrics(f) }

func TestCollector(t *testing.T) {
	c := NewCollector(fixed{
		Caches: 1, Capacity: 2, Requests: 3, Errors: 4, PiecesRead: 5, PiecesWritten: 6, BytesRead: 7, BytesWritten: 8, BuffersUsed: 9,
	})
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	want := `
# HELP redykv_proxy_buffers_used Buffers of 256 KiB that requests hold.
# TYPE redykv_proxy_buffers_used gauge
redykv_proxy_buffers_used 9
# HELP redykv_proxy_bytes_total Bytes of these accesses.
# TYPE redykv_proxy_bytes_total counter
redykv_proxy_bytes_total{op="read"} 7
redykv_proxy_bytes_total{op="write"} 8
# HELP redykv_proxy_caches Caches that the proxy has created.
# TYPE redykv_proxy_caches gauge
redykv_proxy_caches 1
# HELP redykv_proxy_capacity_bytes Capacity of these caches.
# TYPE redykv_proxy_capacity_bytes gauge
redykv_proxy_capacity_bytes 2
# HELP redykv_proxy_errors_total Requests that were answered with an error.
# TYPE redykv_proxy_errors_total counter
redykv_proxy_errors_total 4
# HELP redykv_proxy_pieces_total Accesses to caches, of up to 256 KiB.
# TYPE redykv_proxy_pieces_total counter
redykv_proxy_pieces_total{op="read"} 5
redykv_proxy_pieces_total{op="write"} 6
# HELP redykv_proxy_requests Requests that are being served.
# TYPE redykv_proxy_requests gauge
redykv_proxy_requests 3
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
