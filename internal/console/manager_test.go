package console

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/browsertest"
)

// measuredManager is a manager with one cache that is measured, as its page sees it.
type measuredManager struct {
	*http.ServeMux
	broken prometheus.Gauge

	mu    sync.Mutex // guards cache
	cache *managerv1.DescribeCacheResponse
}

func newMeasuredManager(t *testing.T) *measuredManager {
	t.Helper()
	m := &measuredManager{
		ServeMux: http.NewServeMux(), broken: prometheus.NewGauge(prometheus.GaugeOpts{Name: "redykv_manager_slo_broken_caches"}),
		cache: &managerv1.DescribeCacheResponse{Cache: &managerv1.Cache{
			Id: "cache-1", Capacity: 1 << 20, Configuration: &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 16},
			Slo:       &managerv1.Slo{MaxLatencyUs: 25, MinThroughputMops: 0.75, RecordSize: 64},
			Predicted: &managerv1.Performance{LatencyUs: 20, ThroughputMops: 0.875}, WindowsJudged: 64, WindowsMissed: 2,
		}},
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.broken)
	page := New(Options{Kind: "manager", Metrics: registry, Status: func() string { return Ready }, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(page.Close)
	page.Handle(m.ServeMux, nil)
	const api = "POST /redykv.manager.v1.ManagerService/"
	answer := func(of func() proto.Message) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			m.mu.Lock()
			defer m.mu.Unlock()
			text, err := protojson.Marshal(of())
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(text) // an error means that the page has gone
		}
	}
	m.HandleFunc(api+"Describe", answer(func() proto.Message { return &managerv1.DescribeResponse{Caches: []*managerv1.Cache{m.cache.Cache}} }))
	m.HandleFunc(api+"DescribeCache", answer(func() proto.Message { return m.cache }))
	return m
}

// gives adds a window, and an event if the SLO is broken by it.
func (m *measuredManager) gives(meanUs float64, breaks bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.cache.Windows {
		w.EndedAgoMs += 5000
	}
	w := &managerv1.Window{Number: uint64(len(m.cache.Windows) + 1), LastedMs: 5000, Reads: &managerv1.Measured{
		ThroughputMops: 16 / meanUs, MeanLatencyUs: meanUs, P99LatencyUs: 2 * meanUs, InFlight: 16, RecordSize: 64,
	}}
	m.cache.Windows = append(m.cache.Windows, w)
	m.cache.Cache.Measured = w
	if breaks {
		m.cache.Cache.SloBroken = true
		m.cache.Events = append(m.cache.Events, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_SLO_BROKEN, Reason: "mean latency 32 us of 25 us"})
		m.broken.Set(1)
	}
}

// TestBrokenSLOInChromium: what was asked, predicted and measured stands side by side, a chart shows
// it over time, and a broken SLO is seen as it happens.
func TestBrokenSLOInChromium(t *testing.T) {
	m := newMeasuredManager(t)
	for range 3 {
		m.gives(16, false)
	}
	ctx, url := browsertest.Open(t, m)
	has := func(selector, text string) chromedp.Action {
		return chromedp.Poll(fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))`, selector, text), nil)
	}
	choose := chromedp.Evaluate(`[...document.querySelectorAll('td button')].find(b => b.textContent === 'cache-1').click()`, nil)
	err := chromedp.Run(ctx,
		chromedp.Navigate(url+Path),
		has("dd", "0 broken"),
		has("td", "25 µs, 750 kop/s, 64 B records"), has("td", "20 µs, 875 kop/s"), has("td", "reads 16 µs (p99 32 µs), 1 Mop/s"), has("td.good", "kept 62 of 64"),
		choose, has("figure li", "reads mean 16 µs"), has("figure li", "asked, mean at most 25 µs"), has("figure li", "predicted 875 kop/s"),
	)
	if err != nil {
		t.Fatalf("before it is broken: %v", err)
	}
	m.gives(32, true)
	err = chromedp.Run(ctx,
		has("dd.bad", "1 broken"), has("td.bad", "broken"), has("td", "reads 32 µs (p99 64 µs), 500 kop/s"),
		has("figure li", "reads mean 32 µs"), has("td", "slo broken"), has("td", "mean latency 32 us of 25 us"),
	)
	if err != nil {
		t.Fatalf("the broken SLO is not seen: %v", err)
	}
	looks(ctx, t, url, "slo-", has("td.bad", "broken"), choose, has("figure li", "reads mean 32 µs"))
}
