package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A takeover writes its epoch on the pods of idle VMs only, however many pods caches use.
func TestRestoreOfMany(t *testing.T) {
	t.Parallel()
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	var lent []string
	idle := []string{"vm-1000", "vm-5000"}
	for i := range 7000 {
		id := fmt.Sprint("vm-", i)
		if !slices.Contains(idle, id) {
			lent = append(lent, id)
		}
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: id, UID: "uid", Labels: map[string]string{VMLabel: id},
				Annotations: map[string]string{EpochAnnotation: epochText(1), CatalogAnnotation: "this"},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	pods, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var changed []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet:
			mu.Lock()
			changed = append(changed, r.Method+" "+path.Base(r.URL.Path))
			mu.Unlock()
			_, _ = fmt.Fprint(w, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}`)
		case strings.HasSuffix(r.URL.Path, "/pods"):
			_, _ = w.Write(pods)
		default:
			_, _ = fmt.Fprint(w, `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": []}`)
		}
	}))
	defer server.Close()
	a := apart(t)
	a.client, a.host = clientOf(t, server), of{catalog: "this"}
	running, err := a.Restore(t.Context(), 2, lent, idle)
	if err != nil || len(running) != len(list.Items) {
		t.Errorf("%d VMs run, %v, want %d", len(running), err, len(list.Items))
	}
	slices.Sort(changed)
	if want := []string{"PATCH vm-1000", "PATCH vm-5000"}; !slices.Equal(changed, want) {
		t.Errorf("%d calls, the first ones are %v, want %v", len(changed), changed[:min(len(changed), 5)], want)
	}
}
