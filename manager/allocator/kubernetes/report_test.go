package kubernetes

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
)

// slow is a manager whose answer to the failure of vm-a waits for that of vm-b.
type slow struct {
	allocator.Host
	other chan struct{}
}

func (s slow) Failed(id, _ string) {
	if id == "vm-b" {
		close(s.other)
	}
	<-s.other
}

// apart returns an allocator that reaches no API server. Tests call it as its watches would.
func apart(t *testing.T) *Allocator {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const nowhere = "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(nowhere), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Kubeconfig: kubeconfig, Logger: slog.New(slog.DiscardHandler), Config: Config{
		Pools:    []Pool{{Name: "spare", Nodes: map[string]string{"pool": "spare"}, Memory: resource.MustParse("1Mi")}},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "redykv"}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A report that waits holds up no report of another pod.
func TestReportsWaitForNoOthers(t *testing.T) {
	t.Parallel()
	a := apart(t)
	host := slow{other: make(chan struct{})}
	a.begin(1, []string{"vm-a", "vm-b"})
	a.Attach(host)
	for _, id := range []string{"vm-a", "vm-b"} {
		a.setPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{VMLabel: id}}, Status: corev1.PodStatus{Phase: corev1.PodFailed},
		}, false)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	select {
	case <-host.other:
	case <-ctx.Done():
		t.Fatal("the report of vm-b waits for that of vm-a")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
