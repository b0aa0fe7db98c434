package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/testrun"
)

// clientOf returns a client of an API server.
func clientOf(t *testing.T, server *httptest.Server) *client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": %q}}], "users": [{"name": "a", "user": {}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := newClient(file, "default")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A watch that ends is continued, and all is listed again only if the API server has forgotten what
// has happened since.
func TestFollow(t *testing.T) {
	watches := []struct{ since, events string }{
		{"10", `{"type": "ADDED", "object": {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "b", "resourceVersion": "11", "managedFields": [{}]}}}`},
		{"11", `{"type": "BOOKMARK", "object": {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "15"}}}`},
		{"15", `{"type": "DELETED", "object": {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "b", "resourceVersion": "16"}}}`},
		{"16", `{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}}`},
		{"10", ""}, // refused: see below
		{"10", `{"type": "ADDED", "object": {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "c", "resourceVersion": "12"}}}`},
	}
	n, lists := 0, 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			lists++
			_, _ = fmt.Fprint(w, `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}, "items": [{"metadata": {"name": "a", "managedFields": [{}]}}]}`)
			return
		}
		if n == len(watches) {
			cancel()
			return
		}
		at := watches[n]
		n++
		if since := r.URL.Query().Get("resourceVersion"); since != at.since || r.URL.Query().Get("allowWatchBookmarks") != "true" {
			t.Errorf("watch %d: %s, want it since %s", n, r.URL.RawQuery, at.since)
		}
		if at.events == "" {
			w.WriteHeader(http.StatusGone)
			_, _ = fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"}`)
			return
		}
		_, _ = fmt.Fprintln(w, at.events)
	}))
	defer server.Close()
	a := &Allocator{client: clientOf(t, server), log: slog.New(slog.DiscardHandler)}
	var seen []string
	follow(ctx, a, nodeKind, func(l *corev1.NodeList) {
		seen = append(seen, fmt.Sprint(len(l.Items), " nodes"))
		if l.Items[0].ManagedFields != nil {
			t.Error("managed fields are kept")
		}
	}, func(o *corev1.Node, gone bool) {
		seen = append(seen, fmt.Sprint(o.Name, " gone: ", gone))
		if o.ManagedFields != nil {
			t.Error("managed fields are kept")
		}
	})
	want := []string{"1 nodes", "b gone: false", "b gone: true", "1 nodes", "1 nodes", "c gone: false"}
	if !slices.Equal(seen, want) || lists != 3 {
		t.Errorf("%d lists, seen %q, want %q", lists, seen, want)
	}
}

// No pod waits until events are created or objects are deleted.
func TestLimits(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}`)
	}))
	defer server.Close()
	c := clientOf(t, server)
	for c.events.GetRateLimiter().TryAccept() || c.removals.GetRateLimiter().TryAccept() {
	}
	if !c.core.GetRateLimiter().TryAccept() {
		t.Error("pods wait for events and deletions")
	}
	c.core = nil
	if err := c.create(t.Context(), "events", new(corev1.Event), false); err != nil {
		t.Error(err)
	}
	if err := c.remove(t.Context(), "pods", &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, 0); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"POST /api/v1/namespaces/default/events", "DELETE /api/v1/namespaces/default/pods/a"} {
		if got := testrun.Receive(t, "a request", asked); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A pod on a node that the watch has not seen yet is not deleted as if its process had ended; on one
// that is gone, or not ready, it is.
func TestGrace(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/nodes/late":
			_, _ = fmt.Fprint(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "late"}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}`)
		}
	}))
	defer server.Close()
	node := func(is corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}}}
	}
	a := &Allocator{
		ctx: t.Context(), client: clientOf(t, server), pods: map[string]*corev1.Pod{},
		nodes: map[string]*corev1.Node{"ready": node(corev1.ConditionTrue), "silent": node(corev1.ConditionUnknown)},
	}
	for on, want := range map[string]int64{"": 1, "ready": 1, "late": 1, "silent": 0, "gone": 0} {
		a.pods["p"] = &corev1.Pod{Spec: corev1.PodSpec{NodeName: on}}
		if got := a.grace("p"); got != want {
			t.Errorf("on node %q: %d seconds, want %d", on, got, want)
		}
	}
	if got := a.grace("unknown"); got != 1 {
		t.Errorf("a pod that is not known: %d seconds", got)
	}
}
