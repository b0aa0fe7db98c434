package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/internal/browsertest"
	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }

// process is a process that is watched.
type process struct {
	*Console
	operations *prometheus.CounterVec
	healthy    *prometheus.GaugeVec
	batches    prometheus.Histogram
	mux        *http.ServeMux
}

// watched returns a process with some of a store's metrics.
func watched(t *testing.T) *process {
	t.Helper()
	p := &process{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "redykv_operations_total"}, []string{"kind"}),
		healthy:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "redykv_tier_healthy"}, []string{"name", "tier"}),
		batches:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "redykv_server_batch_seconds", Buckets: []float64{0.001, 0.01}}),
		mux:        http.NewServeMux(),
	}
	markers := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "redykv_log_address_bytes"}, []string{"marker"})
	for marker, at := range map[string]float64{"begin": 1 << 20, "head": 4 << 20, "read_only": 5 << 20, "tail": 6 << 20, "flushed": 5 << 20} {
		markers.WithLabelValues(marker).Set(at)
	}
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_threads"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.operations, p.healthy, p.batches, markers, other)
	p.operations.WithLabelValues("read").Add(10)
	p.healthy.WithLabelValues("redy", "0").Set(1)
	p.batches.Observe(0.005)
	p.Console = New(Options{
		Kind: "store", Version: "v1", Metrics: registry, Status: func() string { return "ready" }, Logger: slog.New(slog.DiscardHandler),
		Details: func() any { return map[string]int{"more": 7} },
	})
	p.Handle(p.mux, nil)
	return p
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// TestState: a program gets the newest sample.
func TestState(t *testing.T) {
	began := time.Now().UnixMilli()
	p := watched(t)
	defer p.Close()
	var s struct {
		Sample
		Details map[string]int
	}
	r := get(t, p.mux, "/console/state")
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if s.Kind != "store" || s.Version != "v1" || s.Status != "ready" || s.Values["redykv_operations_total/read"] != 10 || s.At < began {
		t.Errorf("%+v", s)
	}
	if s.Details["more"] != 7 {
		t.Errorf("details %v", s.Details)
	}
	if h := s.Histograms["redykv_server_batch_seconds"]; fmt.Sprint(h) != "{[0.001 0.01] [0 1 1]}" {
		t.Errorf("a histogram is %v", h)
	}
	if _, other := s.Values["go_threads"]; other {
		t.Error("metrics of the Go runtime are there")
	}
}

// TestAllow: who may not see the process gets the page, and no numbers; a page that may not see them
// any more gets no more.
func TestAllow(t *testing.T) {
	p := watched(t)
	defer p.Close()
	var allowed atomic.Bool
	mux := http.NewServeMux()
	p.Handle(mux, func(*http.Request) error {
		if allowed.Load() {
			return nil
		}
		return errors.New("a token is needed")
	})
	for path, want := range map[string]int{"/console/": http.StatusOK, "/console/state": http.StatusUnauthorized, "/console/live": http.StatusUnauthorized} {
		if r := get(t, mux, path); r.Code != want {
			t.Errorf("%s: %d, want %d", path, r.Code, want)
		}
	}
	allowed.Store(true)
	server := httptest.NewServer(mux)
	defer server.Close()
	r, err := http.Get(server.URL + "/console/live")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	allowed.Store(false)
	text, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasPrefix(string(text), "event: history\n") || strings.Count(string(text), "event: sample\n") > 1 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestAssets: the page and what it loads are there, and it may load nothing else.
func TestAssets(t *testing.T) {
	p := watched(t)
	defer p.Close()
	for path, want := range map[string]string{
		"/console/": "text/html", "/console/console.js": "text/javascript", "/console/console.css": "text/css", "/console/colours.css": "text/css",
		"/console/uPlot.iife.min.js": "text/javascript", "/console/uPlot.LICENSE": "",
	} {
		r := get(t, p.mux, path)
		if r.Code != http.StatusOK || !strings.HasPrefix(r.Header().Get("Content-Type"), want) {
			t.Errorf("%s: %d, %s", path, r.Code, r.Header().Get("Content-Type"))
		}
		if policy := r.Header().Get("Content-Security-Policy"); path == "/console/" && !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("the page may load: %s", policy)
		}
	}
}

// TestLive: a page gets the samples so far and then each new one; it ends with the console.
func TestLive(t *testing.T) {
	p := watched(t)
	server := httptest.NewServer(p.mux)
	defer server.Close()
	r, err := http.Get(server.URL + "/console/live")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	event := func() (name string, data []byte) {
		for lines.Scan() {
			text := lines.Text()
			if after, ok := strings.CutPrefix(text, "event: "); ok {
				name = after
			}
			if after, ok := strings.CutPrefix(text, "data: "); ok {
				return name, []byte(after)
			}
		}
		return "", nil
	}
	name, data := event()
	var before struct {
		At     []int64
		Values map[string][]*float64
	}
	if err := json.Unmarshal(data, &before); err != nil || name != "history" || len(before.At) == 0 || *before.Values["redykv_operations_total/read"][0] != 10 {
		t.Fatalf("%s %s: %v", name, data, err)
	}
	p.operations.WithLabelValues("read").Add(5)
	for {
		var s Sample
		name, data := event()
		if err := json.Unmarshal(data, &s); err != nil || name != "sample" {
			t.Fatalf("%s %s: %v", name, data, err)
		}
		if s.Values["redykv_operations_total/read"] == 15 {
			break
		}
	}
	p.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Error(err)
	}
}

// TestSamples: the console keeps the last samples, and leaves a page that does not take them.
func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := watched(t)
		defer p.Close()
		_, page := p.open()
		time.Sleep((kept + 10) * every)
		synctest.Wait()
		all, other := p.open()
		defer p.leave(other)
		if len(all) != kept || all[1].At-all[0].At != every.Milliseconds() {
			t.Errorf("%d samples, two are %d ms apart", len(all), all[1].At-all[0].At)
		}
		late := 0
		for range page {
			late++
		}
		if late != behind {
			t.Errorf("a page that takes none had %d waiting", late)
		}
	})
}

// TestColumns: numbers that a sample lacks are null.
func TestColumns(t *testing.T) {
	h := columns([]*Sample{
		{At: 1, Values: map[string]float64{"a": 1}},
		{At: 2, Values: map[string]float64{"a": 2, "b": 3}, Histograms: map[string]Histogram{"h": {[]float64{1}, []float64{4, 5}}}},
	})
	text, err := json.Marshal(h)
	const want = `{"kind":"","version":"","at":[1,2],"status":["",""],"values":{"a":[1,2],"b":[null,3]},"histograms":{"h":{"bounds":[1],"counts":[null,[4,5]]}}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// faults is a script that returns what is wrong with how the page looks.
const faults = `(() => {
	const wrong = [];
	if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is wider than its window');
	for (const u of document.querySelectorAll('.uplot')) if (u.getBoundingClientRect().width < 100) wrong.push('a narrow chart');
	const rgb = s => s.match(/[\d.]+/g).slice(0, 3).map(Number);
	const light = s => { const [r, g, b] = rgb(s).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
	const ground = light(getComputedStyle(document.body).backgroundColor);
	for (const e of document.querySelectorAll('h1, h2, p, dt, dd, li, th, td')) {
		const l = light(getComputedStyle(e).color), contrast = (Math.max(l, ground) + .05) / (Math.min(l, ground) + .05);
		if (contrast < 4.5) { wrong.push(e.tagName + ' "' + e.textContent + '" has a contrast of ' + contrast.toFixed(1)); break; }
	}
	for (const e of document.querySelectorAll('[role=img]')) if (!e.getAttribute('aria-label')) wrong.push('a picture without words');
	return wrong;
})()`

// screenshots is a folder for pictures of the page; empty: none are made.
var screenshots = os.Getenv("REDYKV_TEST_SCREENSHOTS")

// looks checks that the page is legible light and dark, on a phone and on a wide screen, each time
// after the actions of ready. Its pictures have names that begin with name.
func looks(ctx context.Context, t *testing.T, url, name string, ready ...chromedp.Action) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{400, 2000} {
			var wrong []string
			var picture []byte
			err := chromedp.Run(ctx,
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.EmulateViewport(width, 1200),
				chromedp.Navigate(url+Path),
				chromedp.Tasks(ready),
				chromedp.Evaluate(faults, &wrong),
				chromedp.FullScreenshot(&picture, 90),
			)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range wrong {
				t.Errorf("%s, %d pixels: %s", scheme, width, w)
			}
			if screenshots != "" {
				if err := os.WriteFile(fmt.Sprintf("%s/%s%s-%d.jpg", screenshots, name, scheme, width), picture, 0o644); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestInChromium: the page shows the process as it changes, and is legible light and dark, on a
// phone and on a wide screen.
func TestInChromium(t *testing.T) {
	p := watched(t)
	defer p.Close()
	asked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, Path) {
			t.Errorf("the page asks for %s", r.URL)
		}
		p.mux.ServeHTTP(w, r)
	})
	ctx, url := browsertest.Open(t, asked)
	looks(ctx, t, url, "", chromedp.Poll(`document.querySelector('#status').textContent === 'ready' && document.querySelectorAll('.uplot').length >= 5`, nil))
	// A tier is lost while somebody watches.
	p.healthy.WithLabelValues("redy", "0").Set(0)
	if err := chromedp.Run(ctx, chromedp.Poll(`document.querySelector('main').textContent.includes('redy out of use')`, nil)); err != nil {
		t.Errorf("the loss of a tier is not seen: %v", err)
	}
}
