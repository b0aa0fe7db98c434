package memhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// echo answers with the request's body, and then with a line a second until it is left.
func echo(calls chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text, err := io.ReadAll(req.Body)
		calls <- string(text)
		if err != nil || req.URL.Path == "/fails" {
			http.Error(w, "it fails", http.StatusTeapot)
			return
		}
		w.Header().Set("Of", req.URL.Path)
		_, _ = w.Write(text)
		for req.URL.Path == "/stream" {
			select {
			case <-time.After(time.Second):
			case <-req.Context().Done():
				calls <- "left"
				return
			}
			_, _ = io.WriteString(w, "line\n")
		}
	})
}

func post(ctx context.Context, n *Network, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://b/"+path, strings.NewReader("hello\n"))
	if err != nil {
		return nil, err
	}
	return (&http.Client{Transport: n.From("a")}).Do(req)
}

// ask makes a call and returns the whole answer, with the path that its header has.
func ask(ctx context.Context, n *Network, path string) (code int, text string, err error) {
	r, err := post(ctx, n, path)
	if err != nil {
		return 0, "", err
	}
	all, err := io.ReadAll(r.Body)
	return r.StatusCode, r.Header.Get("Of") + string(all), errors.Join(err, r.Body.Close())
}

// Calls are answered, also while their answers go on, and fail as they are to.
func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, calls := new(Network), make(chan string, 8)
		n.Serve("b", echo(calls))
		if code, got, err := ask(t.Context(), n, "once"); err != nil || code != http.StatusOK || got != "/oncehello\n" || <-calls != "hello\n" {
			t.Errorf("%d %q: %v", code, got, err)
		}
		if code, got, err := ask(t.Context(), n, "fails"); err != nil || code != http.StatusTeapot || got != "it fails\n" || <-calls != "hello\n" {
			t.Errorf("%d %q: %v", code, got, err)
		}

		for _, cut := range []bool{false, true} { // by the network, or by the caller
			r, err := post(t.Context(), n, "stream")
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len("hello\nline\nline\n"))
			began := time.Now()
			if _, err := io.ReadFull(r.Body, got); err != nil || time.Since(began) != 2*time.Second {
				t.Errorf("%q after %v: %v", got, time.Since(began), err)
			}
			if cut {
				n.Cut(func(c Call) bool { return c == Call{"a", "b", "/stream"} })
				if _, err := r.Body.Read(got); !errors.Is(err, ErrCut) {
					t.Errorf("read after a cut: %v", err)
				}
			}
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
			if <-calls != "hello\n" || <-calls != "left" {
				t.Error("the handler goes on")
			}
		}

		for _, tc := range []struct {
			fault Fault
			want  error
		}{{Refused, ErrRefused}, {Dropped, context.DeadlineExceeded}, {Unanswered, ErrUnanswered}} {
			n.Fail(func(Call) Fault { return tc.fault })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _, err := ask(ctx, n, "once")
			cancel()
			if !errors.Is(err, tc.want) || len(calls) > 0 != (tc.fault == Unanswered) {
				t.Errorf("fault %d: %v, want %v; %d calls are served", tc.fault, err, tc.want, len(calls))
			}
		}
		<-calls // that was not answered
		n.Fail(func(Call) Fault { return Late })
		if _, _, err := ask(t.Context(), n, "once"); !errors.Is(err, ErrCut) || len(calls) > 0 {
			t.Errorf("a late call: %v", err)
		}
		if began := time.Now(); <-calls != "hello\n" || time.Since(began) != LateBy {
			t.Errorf("a late call is served after %v", time.Since(began))
		}
		n.Fail(func(Call) Fault { return Dropped })
		time.AfterFunc(time.Hour, func() { n.Reset(func(c Call) bool { return c.To == "b" }) })
		if _, _, err := ask(t.Context(), n, "once"); !errors.Is(err, ErrCut) || len(calls) > 0 {
			t.Errorf("a dropped call of a network that works again: %v", err)
		}
		n.Fail(nil)
		n.Serve("b", nil)
		if _, _, err := ask(t.Context(), n, "once"); !errors.Is(err, ErrRefused) {
			t.Errorf("a call to nobody: %v", err)
		}
	})
}
