package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
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

// of is a manager with a catalog.
type of struct {
	allocator.Host
	catalog string
}

func (o of) Catalog() string                       { return o.catalog }
func (o of) Credentials(string) access.Credentials { return access.Credentials{} }

// A leader that has none of 50 pods deletes none of them if another catalog's manager has made them, and
// at first a tenth if its own has: its catalog may be an older copy.
func TestUnknownPods(t *testing.T) {
	t.Parallel()
	for catalog, want := range map[string]int{"this": 5, "another": 0, "": 0} {
		t.Run("of catalog "+catalog, func(t *testing.T) {
			a := apart(t)
			a.begin(2, nil)
			a.Attach(of{catalog: "this"})
			var list corev1.PodList
			for i := range 50 {
				id := fmt.Sprint("vm-", i)
				list.Items = append(list.Items, corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Name: id, Labels: map[string]string{VMLabel: id},
						Annotations: map[string]string{EpochAnnotation: epochText(1), CatalogAnnotation: catalog},
					},
					Status: corev1.PodStatus{Phase: corev1.PodRunning},
				})
			}
			for range 2 { // as after a watch was interrupted
				a.setPods(&list)
			}
			testrun.Until(t, "all pods are reported", func() bool { return a.due.Len() == 0 })
			if err := a.Close(); err != nil { // the reports have ended
				t.Error(err)
			}
			deleted := 0
			for _, v := range a.vms {
				if v.is == ending {
					deleted++
				}
			}
			if deleted != want {
				t.Errorf("%d of 50 pods are deleted, want %d", deleted, want)
			}
		})
	}
}

// A tenth of all pods a minute, and one at least.
func TestDiscarding(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	for all, share := range map[int]int{1: 1, 19: 1, 20: 2, 1000: 100} {
		var d discarding
		for minute := range 3 {
			now := began.Add(time.Duration(minute) * time.Minute)
			for i := range share {
				if wait := d.wait(now, all); wait != 0 {
					t.Errorf("%d pods: deletion %d of minute %d waits for %v", all, i, minute, wait)
				}
			}
			if wait := d.wait(now.Add(20*time.Second), all); wait != 40*time.Second {
				t.Errorf("%d pods: after %d of minute %d the next waits for %v", all, share, minute, wait)
			}
		}
	}
}
