package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/redykv/redykv/manager/access"
)

// httpServer is an HTTP server for operators. Without an address it does nothing.
type httpServer struct {
	ln   net.Listener // nil: no address
	log  *slog.Logger
	http http.Server
}

// listenHTTP opens the listener, so that an address in use is an error at the start.
func listenHTTP(ctx context.Context, addr string, log *slog.Logger) (s *httpServer, err error) {
	s = &httpServer{log: log}
	if addr == "" {
		return s, nil
	}
	if !access.Loopback(addr) {
		log.Warn("metrics and profiles are open to everybody who can reach the address", "address", addr)
	}
	s.ln, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
	return s, err
}

// serve starts the HTTP server.
func (s *httpServer) serve(h http.Handler) {
	if s.ln == nil {
		return
	}
	s.http.Handler, s.http.ReadHeaderTimeout = h, 10*time.Second
	s.http.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	go func() {
		if err := s.http.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the HTTP server has failed", "address", s.ln.Addr(), "err", err)
		}
	}()
}

// url returns the server's URL.
func (s *httpServer) url() string { return fmt.Sprintf("http://%s", s.ln.Addr()) }

// close stops the server after its pending requests.
func (s *httpServer) close() {
	if s.ln == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn("an HTTP request was cut off", "err", err)
	}
	_ = s.ln.Close() // needed if serve was not called
}

// newRegistry returns a registry with the metrics of the process and those of numbers.
func newRegistry(numbers ...prometheus.Collector) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(numbers...)
	return registry
}

func metricsHandler(registry *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
	})
}

// handleProfiles adds the profiles of the process at /debug/pprof/, without pprof.Cmdline: a command
// line can hold a password.
func handleProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// serveMetrics serves /metrics for Prometheus, and /debug/pprof/. It returns the part of the ready
// message with the metrics' URL.
func serveMetrics(s *httpServer, registry *prometheus.Registry) (where string) {
	if s.ln == nil {
		return ""
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(registry, s.log))
	handleProfiles(mux)
	s.serve(mux)
	return fmt.Sprintf(", metrics at %s/metrics", s.url())
}
