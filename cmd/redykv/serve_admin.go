package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/device/blob"
	blobprom "github.com/redykv/redykv/device/blob/prom"
	"github.com/redykv/redykv/internal/console"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/prom"
	"github.com/redykv/redykv/kv/resp"
	respprom "github.com/redykv/redykv/kv/resp/prom"
)

// admin is an HTTP server for operators. It runs before the store is opened and until it is
// closed:
//
//	/console/      a page on which to watch the store
//	/metrics       metrics for Prometheus
//	/              the store's metrics as a table
//	/mrc           the miss ratio curve as JSON; PUT /mrc?sampling=on begins and
//	               sampling=off ends the sampling of accesses
//	/healthz       200 while the process is alive
//	/readyz        200 while clients are served, the disk takes their writes, as durably as
//	               promised, and uploads to the bucket have not all failed, otherwise 503 and
//	               the reason
//	/debug/pprof/  profiles
type admin struct {
	*httpServer
	console  *console.Console // nil without an address
	registry *prometheus.Registry
	store    atomic.Pointer[servedStore] // nil until the store is open
	unready  atomic.Pointer[string]      // why clients are not served; "": they are served
}

// servedStore is the open store, its server, and its bucket, which is nil if it has none.
type servedStore struct {
	server *resp.Server
	store  *kv.Store
	bucket *blob.Device
}

// listenAdmin opens the listener and starts the HTTP server.
func listenAdmin(ctx context.Context, addr string, log *slog.Logger) (*admin, error) {
	server, err := listenHTTP(ctx, addr, log)
	a := &admin{httpServer: server}
	a.setUnready("the store is being opened")
	if err != nil || server.ln == nil {
		return a, err
	}
	a.registry = newRegistry()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(a.registry, log))
	mux.HandleFunc("GET /{$}", a.table)
	mux.HandleFunc("GET /mrc", a.curve)
	mux.HandleFunc("PUT /mrc", a.sample)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "healthy\n") })
	mux.HandleFunc("GET /readyz", a.ready)
	handleProfiles(mux)
	a.console = console.New(console.Options{Kind: "store", Version: version(), Metrics: a.registry, Status: a.status, Logger: log})
	a.console.Handle(mux, nil)
	server.serve(mux)
	return a, nil
}

// close ends the pages of the console, and then the server.
func (a *admin) close() {
	if a.console != nil {
		a.console.Close()
	}
	a.httpServer.close()
}

// opened adds the metrics of the open store, and of its server and bucket.
func (a *admin) opened(s servedStore) {
	a.store.Store(&s)
	if a.registry == nil {
		return
	}
	a.registry.MustRegister(prom.NewCollector(s.store, nil), respprom.NewCollector(s.server, nil))
	if s.bucket != nil {
		a.registry.MustRegister(blobprom.NewCollector(s.bucket, nil))
	}
}

// setUnready sets the reason why clients are not served; "": they are served.
func (a *admin) setUnready(unready string) { a.unready.Store(&unready) }

// status returns console.Ready, or why clients are not served, why their writes fail or are not
// durable, or why there is no copy of the store in its bucket. A bucket that has a copy may fail for a
// while.
func (a *admin) status() string {
	if why := *a.unready.Load(); why != "" {
		return why
	}
	if store := a.store.Load(); store != nil {
		if err := store.server.Durable(); err != nil {
			return fmt.Sprintf("writes fail or do not become durable: %v", err)
		}
		if store.bucket != nil {
			if s := store.bucket.Status(); s.Empty && s.Err != nil {
				return fmt.Sprintf("no upload to the bucket has ever succeeded: %v", s.Err)
			}
		}
	}
	return console.Ready
}

func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	code, text := http.StatusOK, a.status()
	if text != console.Ready {
		code = http.StatusServiceUnavailable
	}
	answer(w, code, text+"\n")
}

func (a *admin) table(w http.ResponseWriter, _ *http.Request) {
	store := a.store.Load()
	if store == nil {
		answer(w, http.StatusServiceUnavailable, *a.unready.Load()+"\n")
		return
	}
	answer(w, http.StatusOK, store.store.Metrics().String())
}

// curve answers with the store's miss ratio curve.
func (a *admin) curve(w http.ResponseWriter, _ *http.Request) {
	store := a.store.Load()
	if store == nil {
		answer(w, http.StatusServiceUnavailable, *a.unready.Load()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(store.store.MissRatioCurve()) // an error means that the client is gone
}

// sample begins or ends the sampling of accesses.
func (a *admin) sample(w http.ResponseWriter, r *http.Request) {
	store := a.store.Load()
	how := r.URL.Query().Get("sampling")
	switch {
	case store == nil:
		answer(w, http.StatusServiceUnavailable, *a.unready.Load()+"\n")
	case how != "on" && how != "off":
		answer(w, http.StatusBadRequest, fmt.Sprintf("sampling=%s: want on or off\n", how))
	default:
		if err := store.store.SetSampling(how == "on"); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		answer(w, http.StatusOK, "sampling is "+how+"\n")
	}
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
