package kubetest_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/kubetest"
)

// stubborn makes this program one that ends by SIGTERM only.
const stubborn = "KUBETEST_WAITS"

func TestMain(m *testing.M) {
	if os.Getenv(stubborn) != "" {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		<-asked
		os.Exit(0)
	}
	if os.Getenv(serves) != "" {
		serve()
	}
	os.Exit(kubetest.Main(m))
}

func newPod(name, memory, class string) *corev1.Pod {
	size := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	grace := int64(20)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			PriorityClassName: class, TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "waits", Image: "waits", Resources: corev1.ResourceRequirements{Requests: size, Limits: size},
				Env: []corev1.EnvVar{{Name: stubborn, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
			}},
		},
	}
}

// The scheduler binds pods while there is memory, preempts for a higher priority, and pods
// end when a node is drained.
func TestPodsRunAndEnd(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	self, err := os.Executable()
	check(t, err)
	c.Programs["waits"] = []string{self}
	ctx := t.Context()
	for name, value := range map[string]int32{"low": -10, "high": 1000} {
		_, err := c.Client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		check(t, err)
	}
	n := c.Node(kubetest.NodeOptions{Name: "node-1", Memory: "1Gi"})
	pods := c.Client.CoreV1().Pods("default")
	phase := func(name string, want corev1.PodPhase) {
		t.Helper()
		c.Until(name+" is "+string(want), func(ctx context.Context) (bool, error) {
			p, err := pods.Get(ctx, name, metav1.GetOptions{})
			return err == nil && p.Status.Phase == want, err
		})
	}
	gone := func(name string) {
		t.Helper()
		c.Until(name+" is gone", func(ctx context.Context) (bool, error) {
			_, err := pods.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	}
	for _, p := range []*corev1.Pod{newPod("first", "600Mi", "low"), newPod("second", "600Mi", "high")} {
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		check(t, err)
		phase(p.Name, corev1.PodRunning)
	}
	gone("first")
	check(t, n.Drain(ctx))
	gone("second")
}

// A lost node's pods stay until they are collected.
func TestLostNode(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	self, err := os.Executable()
	check(t, err)
	c.Programs["waits"] = []string{self}
	n := c.Node(kubetest.NodeOptions{Name: "node-1", Memory: "1Gi"})
	pods := c.Client.CoreV1().Pods("default")
	_, err = pods.Create(t.Context(), newPod("stays", "100Mi", ""), metav1.CreateOptions{})
	check(t, err)
	running := func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, "stays", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	}
	c.Until("the pod runs", running)
	n.Lose()
	check(t, c.NotReady(t.Context(), n.Name))
	if ok, err := running(t.Context()); !ok {
		t.Fatal("the pod of a lost node changed:", err)
	}
	check(t, c.Collect(t.Context(), n.Name))
	if _, err := pods.Get(t.Context(), "stays", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal("the pod is not collected:", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
