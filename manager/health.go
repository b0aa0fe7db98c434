package manager

import (
	"context"
	"io"
	"net/http"
)

// health says over plain HTTP whether the manager lives, and whether it can be
// asked: for who starts it, and for who balances load. Both need no token.
func (m *Manager) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, context.Cause(m.ctx)) })
}

func say(w http.ResponseWriter, err error) {
	text := "ok\n"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error() + "\n"
	}
	_, _ = io.WriteString(w, text) // who asked may have left
}
