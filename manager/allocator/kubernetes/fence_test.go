package kubernetes_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
	"github.com/redykv/redykv/manager/menu"
)

// audience is the manager of an allocator that a test calls itself. It ignores reports.
type audience struct{ allocator.Host }

func (audience) URL() string                           { return "http://127.0.0.1:1" }
func (audience) Credentials(string) access.Credentials { return access.Credentials{Insecure: true} }
func (audience) Failed(string, string)                 {}
func (audience) Reclaimed(string, time.Time, string)   {}
func (audience) Waiting(string, string)                {}
func (audience) OffersChanged()                        {}

// leader returns the allocator of the leader of an epoch, which has VMs.
func (w *world) leader(epoch uint64, vms ...string) *kubernetes.Allocator {
	w.t.Helper()
	a := w.allocator()
	a.Attach(audience{})
	w.t.Cleanup(func() { check(w.t, a.Close()) })
	w.restore(a, epoch, vms...)
	return a
}

// restore calls Restore, which must find that all VMs run.
func (w *world) restore(a *kubernetes.Allocator, epoch uint64, vms ...string) {
	w.t.Helper()
	running, err := a.Restore(w.t.Context(), epoch, vms)
	check(w.t, err)
	if slices.Sort(running); !slices.Equal(running, vms) {
		w.t.Errorf("running %v, want %v", running, vms)
	}
}

func spare(vm string) allocator.VMSpec {
	return allocator.VMSpec{ID: vm, Kind: menu.Kind{Type: "spare"}, Memory: 1 << 20, Transport: "tcp"}
}

// epochs checks that there are the pods and secrets of VMs, and no others, with an epoch.
func (w *world) epochs(epoch uint64, vms ...string) {
	w.t.Helper()
	var have []string
	for _, o := range w.objects() {
		have = append(have, o.Labels[kubernetes.VMLabel])
		if got := o.Annotations[kubernetes.EpochAnnotation]; got != strconv.FormatUint(epoch, 10) {
			w.t.Errorf("%s has the epoch %q, want %d", o.Name, got, epoch)
		}
	}
	want := slices.Sorted(slices.Values(append(vms, vms...)))
	if slices.Sort(have); !slices.Equal(have, want) {
		w.t.Errorf("pods and secrets of %v, want %v", have, want)
	}
}

// A leader whose term has ended changes nothing: it cannot terminate a VM that the next leader
// has, and what it launches goes.
func testFenced(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"}) // without nodes: pods stay as they were created
	ctx := t.Context()
	former := w.leader(1)
	check(t, former.Launch(ctx, spare("vm-a")))
	w.epochs(1, "vm-a")
	next := w.leader(2, "vm-a")
	w.epochs(2, "vm-a")

	_, restored := former.Restore(ctx, 1, nil)
	for call, err := range map[string]error{
		"Terminate": former.Terminate(ctx, "vm-a", "no cache uses it"), "Launch": former.Launch(ctx, spare("vm-a")), "Restore": restored,
	} {
		if !errors.Is(err, allocator.ErrFenced) {
			t.Errorf("%s of a former leader: %v", call, err)
		}
	}
	w.epochs(2, "vm-a")

	check(t, former.Launch(ctx, spare("vm-b")))
	w.until("what a former leader launched is gone", func() bool { return len(w.objects()) == 2 })
	w.epochs(2, "vm-a")
	check(t, next.Terminate(ctx, "vm-a", "no cache uses it"))
	w.empty()
	check(t, former.Launch(ctx, spare("vm-a")))
	w.empty()
}

// A leader takes over what was created before there were epochs, and what it launches again.
func testTakesOver(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	former := w.leader(1)
	for _, vm := range []string{"vm-a", "vm-b"} {
		check(t, former.Launch(t.Context(), spare(vm)))
	}
	for _, p := range w.pods() {
		none := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, kubernetes.EpochAnnotation)
		_, err := c.Client.CoreV1().Pods(w.name).Patch(t.Context(), p.Name, types.MergePatchType, none, metav1.PatchOptions{})
		check(t, err)
	}
	check(t, former.Close())
	next := w.leader(2, "vm-a", "vm-b")
	w.epochs(2, "vm-a", "vm-b")
	check(t, next.Close())
	last := w.allocator()
	last.Attach(audience{})
	check(t, last.Launch(t.Context(), spare("vm-c"))) // it has no epoch yet
	w.restore(last, 3, "vm-a", "vm-b", "vm-c")
	check(t, last.Launch(t.Context(), spare("vm-a")))
	w.epochs(3, "vm-a", "vm-b", "vm-c")
	w.restore(last, 4)
	w.empty()
	check(t, last.Close())
}

// through returns a kubeconfig by which deletions of pods pass only when goOn is closed. held has
// a value when one is held.
func (w *world) through(goOn <-chan struct{}) (kubeconfig string, held <-chan struct{}) {
	w.t.Helper()
	authority, err := os.ReadFile(w.CA)
	check(w.t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	target, err := url.Parse(w.URL)
	check(w.t, err)
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		FlushInterval: -1, // of watches
	}
	waits := make(chan struct{}, 1)
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/pods/") {
			select {
			case waits <- struct{}{}:
			default:
			}
			select {
			case <-goOn:
			case <-w.t.Context().Done():
			}
		}
		forward.ServeHTTP(answer, r)
	}))
	w.t.Cleanup(proxy.Close)
	text, err := os.ReadFile(w.Kubeconfig(w.name, w.name))
	check(w.t, err)
	kubeconfig = filepath.Join(w.t.TempDir(), "kubeconfig")
	check(w.t, os.WriteFile(kubeconfig+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600))
	changed := strings.NewReplacer(w.URL, proxy.URL, w.CA, kubeconfig+".crt").Replace(string(text))
	check(w.t, os.WriteFile(kubeconfig, []byte(changed), 0o600))
	return kubeconfig, waits
}

// A leader is stopped between its decision to delete a pod and the API server, and the next one
// takes the pod over. The deletion that arrives then changes nothing.
func testLateDeletion(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	goOn := make(chan struct{})
	var held <-chan struct{}
	w.kubeconfig, held = w.through(goOn)
	former := w.leader(1)
	check(t, former.Launch(t.Context(), spare("vm-a")))
	deleted := make(chan error, 1)
	go func() { deleted <- former.Terminate(t.Context(), "vm-a", "no cache uses it") }()
	<-held
	w.kubeconfig = ""
	w.leader(2, "vm-a")
	close(goOn)
	if err := <-deleted; !errors.Is(err, allocator.ErrFenced) {
		t.Errorf("the late deletion: %v", err)
	}
	w.epochs(2, "vm-a")
}
