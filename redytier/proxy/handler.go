package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/manager/api"
)

// methods are the handlers of one path, by method. A handler returns an error before it has
// written anything, or errCutOff.
type methods map[string]func(w http.ResponseWriter, r *http.Request) error

// errCutOff ends an answer that cannot be completed: the connection is closed, or the stream
// reset.
var errCutOff = errors.New("proxy: answer cut off")

// Handler serves the API.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, m := range map[string]methods{
		"/v1/caches":              {http.MethodGet: p.listCaches, http.MethodPost: p.createCache},
		"/v1/caches/{id}":         {http.MethodGet: p.describeCache, http.MethodDelete: p.deleteCache},
		"/v1/caches/{id}/regions": {http.MethodGet: p.listRegions},
		"/v1/caches/{id}/bytes":   {http.MethodGet: p.readBytes, http.MethodPut: p.writeBytes},
	} {
		mux.Handle(path, p.guarded(m))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { p.answer(w, http.StatusOK, struct{}{}) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.refuse(w, problemf(CodeNotFound, "no such path: %.100q", r.URL.Path))
	})
	return mux
}

// guarded serves one path. It checks the caller's token and bounds the requests.
func (p *Proxy) guarded(m methods) http.Handler {
	allowed := make([]string, 0, len(m))
	for method := range m {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.giveTime(w) // also for 100 Continue
		w.Header().Set("Cache-Control", "no-store")
		// The role that creates caches at a manager does so here, and uses them.
		if _, err := p.guard.Admit(r.Context(), managerv1connect.ManagerServiceAllocateProcedure, r.Header.Get("Authorization")); err != nil {
			p.refuse(w, tokenProblem(err))
			return
		}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		handle := m[method]
		if handle == nil {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			p.refuse(w, problemf(CodeMethod, "%.20s is not possible here: want %s", r.Method, strings.Join(allowed, " or ")))
			return
		}
		select {
		case p.running <- struct{}{}:
			defer func() { <-p.running }()
		default:
			p.refuse(w, problemf(CodeBusy, "%d requests are being served", cap(p.running)))
			return
		}
		switch err := handle(w, r); {
		case errors.Is(err, errCutOff):
			p.log.Debug("an answer was cut off", "path", r.URL.Path, "err", err)
			panic(http.ErrAbortHandler) // how net/http closes the connection
		case err != nil:
			p.refuse(w, err)
		}
	})
}

// tokenProblem returns the answer for the error of a [access.Guard].
func tokenProblem(err error) error {
	code := CodeForbidden
	if t, ok := errors.AsType[*api.TokenError](err); ok && t.Problem != api.TokenRole {
		code = CodeUnauthenticated
	}
	return &problem{code: code, message: err.Error(), err: err}
}

// errorAnswer is the JSON of an error.
type errorAnswer struct {
	Error struct {
		Code    Code   `json:"code"`
		Message string `json:"message"`
		Written *int64 `json:"written,omitempty"`
	} `json:"error"`
}

// refuse answers with an error.
func (p *Proxy) refuse(w http.ResponseWriter, err error) {
	reason := problemOf(err)
	p.counts.errors.Add(1)
	status := reason.code.status()
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	for name, values := range reason.headers {
		w.Header()[name] = values
	}
	var answer errorAnswer
	answer.Error.Code, answer.Error.Message, answer.Error.Written = reason.code, reason.message, reason.written
	p.answer(w, status, answer)
}

// answer writes JSON. It ignores write errors: the caller is gone.
func (p *Proxy) answer(w http.ResponseWriter, status int, body any) {
	p.giveTime(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// giveTime bounds the time for the next bytes to the caller. The deadline of an answer stays in
// force until it is sent, after the handler has returned.
func (p *Proxy) giveTime(w http.ResponseWriter) {
	// It fails only if the connection has ended, or for a writer of tests.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(p.opts.Timeout))
}
