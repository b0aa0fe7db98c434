package console

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/redykv/redykv/internal/bench/plot"
)

//go:embed assets
var embedded embed.FS

// Path is where the page is.
const Path = "/console/"

// Handle adds the page to a server. allow returns the error of a request that may not see the
// process; nil: all may.
func (c *Console) Handle(mux *http.ServeMux, allow func(*http.Request) error) {
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the folder is embedded
	}
	if allow == nil {
		allow = func(*http.Request) error { return nil }
	}
	mux.Handle("GET "+Path, http.StripPrefix(Path, guarded(http.FileServerFS(assets))))
	mux.HandleFunc("GET "+Path+"colours.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = io.WriteString(w, string(plot.Style)) // an error means that the page has gone
	})
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request, func(*http.Request) error){"state": c.state, "live": c.live} {
		mux.HandleFunc("GET "+Path+name, func(w http.ResponseWriter, r *http.Request) {
			if err := allow(r); err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
			serve(w, r, allow)
		})
	}
}

// guarded lets the page load nothing from elsewhere, and no other page show it.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; form-action 'none'; base-uri 'none'")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cache-Control", "no-cache") // another version may be served next
		h.ServeHTTP(w, r)
	})
}

func (c *Console) state(w http.ResponseWriter, _ *http.Request, _ func(*http.Request) error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	answer := struct {
		*Sample
		Details any `json:"details,omitempty"`
	}{Sample: c.newest()}
	if c.opts.Details != nil {
		answer.Details = c.opts.Details()
	}
	_ = json.NewEncoder(w).Encode(answer) // an error means that the client has gone
}

// live sends samples until the page leaves, or may not see them any more. The first event has the
// samples so far.
func (c *Console) live(w http.ResponseWriter, r *http.Request, allow func(*http.Request) error) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	before, page := c.open()
	defer c.leave(page)
	if send(w, "history", columns(before)) != nil {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-c.ctx.Done():
			return
		case s, ok := <-page:
			if !ok || allow(r) != nil || send(w, "sample", s) != nil {
				return
			}
		}
	}
}

// send sends one event.
func send(w http.ResponseWriter, event string, data any) error {
	text, err := json.Marshal(data)
	if err == nil {
		_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text)
	}
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	return err
}

// history has samples by column, so that each name is there once. A sample without a number has
// null.
type history struct {
	Kind       string             `json:"kind"`
	Version    string             `json:"version"`
	At         []int64            `json:"at"`
	Status     []string           `json:"status"`
	Values     map[string][]any   `json:"values"`
	Histograms map[string]courses `json:"histograms"`
}

// courses are the counts of a histogram in each sample.
type courses struct {
	Bounds []float64   `json:"bounds"`
	Counts [][]float64 `json:"counts"`
}

func columns(samples []*Sample) *history {
	h := &history{Values: make(map[string][]any), Histograms: make(map[string]courses)}
	for i, s := range samples {
		h.Kind, h.Version = s.Kind, s.Version
		h.At, h.Status = append(h.At, s.At), append(h.Status, s.Status)
		for key, v := range s.Values {
			if h.Values[key] == nil {
				h.Values[key] = make([]any, len(samples))
			}
			h.Values[key][i] = v
		}
		for key, v := range s.Histograms {
			all := h.Histograms[key]
			if all.Counts == nil {
				all = courses{v.Bounds, make([][]float64, len(samples))}
			}
			all.Counts[i] = v.Counts
			h.Histograms[key] = all
		}
	}
	return h
}
