package kubernetes_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A pod waits for room and then lends its memory; a drain is a reclaim with notice; a user
// without rights is told which.
func TestPodsLendMemory(t *testing.T) {
	c := kubetest.Start(t)
	program := filepath.Join(t.TempDir(), "redykv")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/redykv/redykv/cmd/redykv").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.Programs["redykv"] = []string{program}
	spare := map[string]string{"pool": "spare"}
	c.Node(kubetest.NodeOptions{Name: "small", Memory: "32Mi", Labels: spare})
	config := kubernetes.Config{
		Namespace: "default",
		Pools:     []kubernetes.Pool{{Name: "spare", Nodes: spare, Memory: resource.MustParse("64Mi"), Cores: 1, NoticeSeconds: 30}},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "redykv", Image: "redykv", Args: []string{"cacheserver"},
		}}}},
	}
	ctx := t.Context()
	poor, err := kubernetes.New(kubernetes.Options{Config: config, Kubeconfig: c.Kubeconfig("nobody", "default")})
	check(t, err)
	if err := poor.Check(ctx); err == nil || !strings.Contains(err.Error(), "no right to create pods in namespace default") {
		t.Errorf("check without rights: %v", err)
	}
	a, err := kubernetes.New(kubernetes.Options{Config: config, Kubeconfig: c.Kubeconfig("", "default"), Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	check(t, a.Check(ctx))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	m, err := manager.New(manager.Options{Allocator: a, URL: "http://" + ln.Addr().String(), Lease: -1, Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	served := make(chan error, 1)
	go func() { served <- m.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(m.Close(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	client := access.Dial(ln.Addr().String())
	want := &managerv1.AllocateRequest{Capacity: 1 << 20, RegionSize: 1 << 20, RequestId: "0123456789abcdef", WaitMs: 50}
	var got *connect.Response[managerv1.AllocateResponse]
	c.Until("the request waits for room", func(ctx context.Context) (bool, error) {
		got, err = client.Allocate(ctx, connect.NewRequest(want))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(got.Msg.GetPending(), " "), "Insufficient memory"), nil
	})
	n := c.Node(kubetest.NodeOptions{Name: "large", Memory: "1Gi", Labels: spare})
	c.Until("the cache is allocated", func(ctx context.Context) (bool, error) {
		got, err = client.Allocate(ctx, connect.NewRequest(want))
		return err == nil && len(got.Msg.GetPending()) == 0, err
	})
	pods, err := c.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(pods.Items) != 1 || pods.Items[0].Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Fatalf("%d pods, of class %v", len(pods.Items), pods.Items[0].Status.QOSClass)
	}
	check(t, n.Drain(ctx))
	c.Until("the VM is reclaimed", func(context.Context) (bool, error) { return m.Metrics().Reclaimed > 0, nil })
	_, err = client.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: got.Msg.GetCacheId()}))
	check(t, err)
	c.Until("the pod is gone", func(ctx context.Context) (bool, error) {
		pods, err := c.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, err
	})
}
