package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsServer answers /metrics, for Prometheus, and / with a table of the same
// numbers for people. One without an address answers nowhere.
type metricsServer struct {
	ln   net.Listener // nil: nowhere
	log  *slog.Logger
	http http.Server
}

// listenMetrics takes the address, so that one in use is noticed at once.
func listenMetrics(ctx context.Context, addr string, log *slog.Logger) (s *metricsServer, err error) {
	s = &metricsServer{log: log}
	if addr != "" {
		s.ln, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
	}
	return s, err
}

// serve begins to answer, with numbers and, unless it is nil, with the table, and returns what is to be said of it: where.
func (s *metricsServer) serve(numbers prometheus.Collector, table func() string) (where string) {
	if s.ln == nil {
		return ""
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(numbers, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	}))
	if table != nil {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, table()) // who has gone does not want to know
		})
	}
	s.http.Handler, s.http.ReadHeaderTimeout = mux, 10*time.Second
	s.http.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	go func() {
		if err := s.http.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("metrics are not served any more", "err", err)
		}
	}()
	return fmt.Sprintf(", metrics at http://%s/metrics", s.ln.Addr())
}

// close ends the answering, after what is being answered.
func (s *metricsServer) close() {
	if s.ln == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn("a reader of metrics was cut off", "err", err)
	}
	_ = s.ln.Close() // for the case that it was not served
}
