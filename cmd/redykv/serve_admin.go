package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/manager/access"
)

// admin is an HTTP server for operators. It runs before the store is opened and until it is
// closed:
//
//	/metrics       metrics for Prometheus
//	/              the store's metrics as a table
//	/healthz       200 while the process is alive
//	/readyz        200 while clients are served and their writes become as
//	               durable as promised, otherwise 503 and the reason
//	/debug/pprof/  profiles
type admin struct {
	*httpServer
	registry *prometheus.Registry
	store    atomic.Pointer[servedStore] // nil until the store is open
	unready  atomic.Pointer[string]      // why clients are not served; "": they are served
}

// servedStore is the open store's server and table of metrics.
type servedStore struct {
	server *resp.Server
	table  func() string
}

// listenAdmin opens the listener and starts the HTTP server.
func listenAdmin(ctx context.Context, addr string, log *slog.Logger) (*admin, error) {
	server, err := listenHTTP(ctx, addr, log)
	a := &admin{httpServer: server}
	a.setUnready("the store is being opened")
	if err != nil || server.ln == nil {
		return a, err
	}
	if !access.Loopback(addr) {
		log.Warn("metrics and profiles are open to everybody who can reach the address", "admin", addr)
	}
	a.registry = newRegistry()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(a.registry, log))
	mux.HandleFunc("GET /{$}", a.table)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "healthy\n") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	server.serve(mux)
	return a, nil
}

// opened adds the metrics of the open store and of its server.
func (a *admin) opened(server *resp.Server, table func() string, numbers ...prometheus.Collector) {
	a.store.Store(&servedStore{server, table})
	if a.registry != nil {
		a.registry.MustRegister(numbers...)
	}
}

// setUnready sets the reason why clients are not served; "": they are served.
func (a *admin) setUnready(unready string) { a.unready.Store(&unready) }

func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	why := *a.unready.Load()
	if store := a.store.Load(); why == "" && store != nil {
		if err := store.server.Durable(); err != nil {
			why = fmt.Sprintf("writes do not become durable: %v", err)
		}
	}
	if why != "" {
		answer(w, http.StatusServiceUnavailable, why+"\n")
		return
	}
	answer(w, http.StatusOK, "ready\n")
}

func (a *admin) table(w http.ResponseWriter, _ *http.Request) {
	store := a.store.Load()
	if store == nil {
		answer(w, http.StatusServiceUnavailable, *a.unready.Load()+"\n")
		return
	}
	answer(w, http.StatusOK, store.table())
}

// answer writes a reply in plain text. It ignores write errors: the client is gone.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// where returns the part of the ready message with the URL.
func (a *admin) where() string {
	if a.ln == nil {
		return ""
	}
	return ", admin at " + a.url()
}
