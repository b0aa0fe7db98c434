package kubernetes_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
	"github.com/redykv/redykv/manager/menu"
)

// audience is the manager of an allocator that a test calls itself. It ignores reports.
type audience struct{ allocator.Host }

func (audience) URL() string                           { return "http://127.0.0.1:1" }
func (audience) Catalog() string                       { return "this" }
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
	running, err := a.Restore(w.t.Context(), epoch, nil, vms)
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

	_, restored := former.Restore(ctx, 1, nil, nil)
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
	w.restore(last, 4, "vm-a", "vm-b")
	w.until("the pod that no leader has is gone", func() bool { return len(w.pods()) == 2 })
	for _, vm := range []string{"vm-a", "vm-b"} {
		check(t, last.Terminate(t.Context(), vm, "no cache uses it"))
	}
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

// attentive is an audience that notes what it hears of VMs.
type attentive struct {
	audience
	heard chan<- string
}

func (h attentive) Failed(id, reason string)                   { h.heard <- id + " failed: " + reason }
func (h attentive) Reclaimed(id string, _ time.Time, _ string) { h.heard <- id + " is reclaimed" }
func (h attentive) Waiting(id, _ string)                       { h.heard <- id + " waits" }

// lines has what is written to it.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// again is a leader that launches vm-a again, of which it deletes a stray pod: the deletion is held
// up until goOn is closed.
type again struct {
	*world
	next  *kubernetes.Allocator
	goOn  chan struct{}
	held  <-chan struct{}
	heard chan string
	log   lines
}

// launchAgain begins the term of such a leader, which finds no pod of vm-a that runs.
func (w *world) launchAgain() *again {
	w.t.Helper()
	g := &again{world: w, goOn: make(chan struct{}), heard: make(chan string, 100), log: make(lines, 100)}
	w.kubeconfig, g.held = w.through(g.goOn)
	w.log = slog.New(slog.NewTextHandler(g.log, nil))
	g.next = w.allocator()
	g.next.Attach(attentive{heard: g.heard})
	w.t.Cleanup(func() { check(w.t, g.next.Close()) })
	running, err := g.next.Restore(w.t.Context(), 2, nil, []string{"vm-a"})
	if check(w.t, err); len(running) > 0 {
		w.t.Errorf("running %v", running)
	}
	return g
}

// await waits until the deletion of the stray is held up, and forgets what was heard of the stray
// before: Restore may hear of its end.
func (g *again) await() {
	testrun.Receive(g.t, "the deletion of the stray is held up", g.held)
	for len(g.heard) > 0 {
		<-g.heard
	}
}

// spared checks that the deletion of the stray spares the launch, of which the leader hears, and of
// nothing else.
func (g *again) spared() {
	g.t.Helper()
	g.until("the deletion is given up", func() bool {
		select {
		case line := <-g.log:
			return strings.Contains(line, "pod not deleted")
		default:
			return false
		}
	})
	g.until("the leader hears of its pod", func() bool { return len(g.heard) > 0 })
	if got := <-g.heard; got != "vm-a waits" {
		g.t.Error("the leader heard: " + got)
	}
	g.epochs(2, "vm-a")
}

// The pod of a VM that is not up has ended while there was no leader. The next one launches the VM
// in a new pod.
func testEndedLaunchedAgain(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"}) // without nodes
	check(t, w.leader(1).Launch(t.Context(), spare("vm-a")))
	var pod corev1.Pod
	w.until("the pod has ended", func() bool { // unless the scheduler changes it meanwhile
		pod = w.pods()[0]
		pod.Status.Phase = corev1.PodFailed
		_, err := c.Client.CoreV1().Pods(w.name).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
		return err == nil
	})
	g := w.launchAgain()
	g.await()
	launched := make(chan error, 1)
	go func() { launched <- g.next.Launch(t.Context(), spare("vm-a")) }()
	select {
	case <-g.held: // by Launch
	case err := <-launched:
		t.Fatalf("the ended pod is taken over: %v", err)
	case <-time.After(testrun.Patience(testrun.Bound)):
		t.Fatal("the launch is not held up")
	}
	close(g.goOn)
	check(t, testrun.Receive(t, "the VM is launched", launched))
	g.spared()
	if now := w.pods()[0]; now.UID == pod.UID {
		t.Error("the ended pod is still there")
	}
}

// The pod of a VM that is not up is created late by a former leader. The next one takes it over
// while it is about to delete it.
func testLateLaunchedAgain(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	former := w.leader(1)
	g := w.launchAgain()
	check(t, former.Launch(t.Context(), spare("vm-a")))
	g.await()
	check(t, g.next.Launch(t.Context(), spare("vm-a")))
	close(g.goOn)
	g.spared()
}
