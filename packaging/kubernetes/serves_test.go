package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/internal/testrun"
)

// smaller makes the manifests those of one small machine. The path of etcd's
// program is its image's.
const smaller = `
cd packaging/kubernetes
sed -i 's/--memory=1GiB/--memory=64MiB/; s/--cache=8GiB/--cache=64MiB/' store/store.yaml
sed -i 's/memory: [12]Gi/memory: 16Mi/' manager/pools.yaml
sed -i '/command: /d' etcd/etcd.yaml
`

// What the guide leads to runs: managers, their catalog and a store, whose cache is pods; and
// the guide's commands for operators work in the managers' pods. A node is drained as it says.
func TestServes(t *testing.T) {
	c := fromEmpty(t, kubetest.StartFull, smaller)
	etcd, err := etcdtest.Program()
	c.check(err)
	c.Programs["quay.io/coreos/etcd:v3.6.16"] = []string{etcd}
	ctx := t.Context()
	c.disks(2)
	for _, m := range regexp.MustCompile(`(?m)^\$ (kubectl .* rollout .*)$`).FindAllStringSubmatch(strings.Join(guide(t, "console"), "\n"), -1) {
		c.bash(m[1] + fmt.Sprintf(" --timeout=%v", testrun.Patience(2*time.Minute)) + " || { kubectl get pods -A -o yaml; exit 1; }")
	}
	password := c.bash("kubectl -n redykv get secret redykv-store -o jsonpath='{.data.password}' | base64 -d")
	db := redis.NewClient(&redis.Options{Password: password, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		at := c.Endpoints("redykv", "redykv-store")
		if len(at) == 0 {
			return nil, errors.New("the store is not ready")
		}
		return new(net.Dialer).DialContext(ctx, network, at[0]+":6380")
	}})
	defer func() { _ = db.Close() }()
	complete := func() {
		t.Helper()
		c.Until("the store has all its remote memory", func(ctx context.Context) (bool, error) {
			info, err := db.Info(ctx, "stats").Result()
			return strings.Contains(info, "name=redy,healthy=true,complete=true"), err
		})
	}
	complete()
	c.check(db.Set(ctx, "greeting", "hello", 0).Err())
	for command, want := range map[string]string{
		"manager check": "no faults found", "vm offers": "stranded-1g", "cache list": "64MiB", "vm list": "stranded-1g",
	} {
		if said := c.operator(command); !strings.Contains(said, want) {
			t.Errorf("redykv %s said, without %q:\n%s", command, want, said)
		}
	}
	c.Node(kubetest.NodeOptions{Name: "node-2", Memory: "64Gi", CPU: "16"})
	text, err := os.ReadFile("../../docs/kubernetes.md")
	c.check(err)
	drain := regexp.MustCompile("`(kubectl drain NODE .*?)`").FindSubmatch(text)[1]
	c.bash(strings.ReplaceAll(string(drain), "NODE", "node-1") + fmt.Sprintf(" --timeout=%v", testrun.Patience(3*time.Minute)))
	complete()
	got, err := db.Get(ctx, "greeting").Result()
	if !errors.Is(err, redis.Nil) {
		c.check(err)
	}
	if got != "hello" {
		testrun.Wrong(t, "after the drain the store has %q (%v)", got, err)
	}
}

// disks makes disks that any node can mount.
func (c *cluster) disks(n int) {
	c.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Gi")}
	for i := range n {
		_, err := c.Client.CoreV1().PersistentVolumes().Create(c.t.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("disk-", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: c.t.TempDir()}},
			},
		}, metav1.CreateOptions{})
		c.check(err)
	}
}

// operator runs the guide's command that begins with what is given in a pod like the managers',
// and returns what it printed.
func (c *cluster) operator(command string) string {
	c.t.Helper()
	console := strings.Join(guide(c.t, "console"), "\n")
	managers := regexp.MustCompile(`(?m)^\$ managers=(.*)$`).FindStringSubmatch(console)[1]
	found := regexp.MustCompile(`(?m) -- /redykv (` + command + ` .*)$`).FindStringSubmatch(console)
	if found == nil {
		c.t.Fatalf("the guide has no command redykv %s", command)
	}
	ctx, pods := c.t.Context(), c.Client.CoreV1().Pods("redykv")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "operator-"}, Spec: c.templates()["redykv-manager"].Spec}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	o := &p.Spec.Containers[0]
	o.Args, o.ReadinessProbe, o.LivenessProbe = strings.Fields(strings.ReplaceAll(found[1], "$managers", managers)), nil, nil
	p, err := pods.Create(ctx, p, metav1.CreateOptions{})
	c.check(err)
	c.Until("redykv "+command+" ends", func(ctx context.Context) (bool, error) {
		p, err = pods.Get(ctx, p.Name, metav1.GetOptions{})
		return err == nil && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed), err
	})
	said := p.Status.ContainerStatuses[0].State.Terminated.Message
	if p.Status.Phase == corev1.PodFailed {
		c.t.Errorf("redykv %s failed: %s", command, said)
	}
	return said
}
