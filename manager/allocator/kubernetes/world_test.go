package kubernetes_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
	"github.com/redykv/redykv/redytier"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testrun.Cleanup()
	os.Exit(code)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a cluster that runs redykv and sleep, with two priority classes.
func start(t *testing.T) *kubetest.Cluster {
	t.Helper()
	c := kubetest.Start(t)
	c.Programs["redykv"], c.Programs["sleep"] = []string{testrun.Program(t)}, []string{"sleep"}
	c.Programs["sh"] = []string{"sh", "-c", "exec sleep 600"}
	for name, value := range map[string]int32{"spot": -10, "urgent": 1000} {
		_, err := c.Client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
		}, metav1.CreateOptions{})
		check(t, err)
	}
	return c
}

// world is a namespace of a shared cluster, with a manager that has the rights of
// kubernetes.Rights there, and no others.
type world struct {
	*kubetest.Cluster
	t          *testing.T
	name       string // of the namespace, and the prefix of its nodes
	config     kubernetes.Config
	options    manager.Options // of the next start
	kubeconfig string          // of the manager; empty: its own
	log        *slog.Logger    // of the next allocator
	address    string          // of the manager
	m          *manager.Manager
	client     access.Client
	request    string // id of requests that have none of their own; another one after deallocate
	stop       func()
}

// newWorld returns the world of a subtest, which runs beside others. Its manager is not started.
func newWorld(t *testing.T, c *kubetest.Cluster, pools ...kubernetes.Pool) *world {
	t.Helper()
	t.Parallel()
	w := &world{Cluster: c, t: t, name: strings.ToLower(path.Base(t.Name())), address: "127.0.0.1:0", log: slog.New(slog.DiscardHandler), request: rand.Text()}
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, metav1.CreateOptions{})
	check(t, err)
	for i := range pools {
		pools[i].Nodes = w.labels(pools[i].Name)
		if pools[i].Memory.IsZero() {
			pools[i].Memory = resource.MustParse("64Mi")
		}
	}
	w.config = kubernetes.Config{
		Namespace: w.name, Pools: pools,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "redykv", Image: "redykv", Args: []string{"cacheserver", "--log-level", "warn"},
		}}}},
	}
	// Credentials, so that each pod has a secret.
	w.options = manager.Options{Access: access.Credentials{Insecure: true}, Heartbeat: 200 * time.Millisecond, Silence: 10 * time.Second, MigrationRate: 1 << 30}
	w.permit(kubernetes.Rights())
	w.bind()
	w.until("the rights hold", func() bool {
		err := w.allocator().Check(t.Context())
		return err == nil || !strings.Contains(err.Error(), "no right")
	})
	w.stop = func() {}
	t.Cleanup(func() { w.stop() }) // after what the test itself cleans up
	return w
}

func (w *world) labels(pool string) map[string]string {
	return map[string]string{"pool": w.name + "-" + pool}
}

// permit gives the manager rights, instead of those that it has.
func (w *world) permit(rights []kubernetes.Right) {
	w.t.Helper()
	var rules, global []rbacv1.PolicyRule
	for _, r := range rights {
		rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}}
		if r.Namespaced {
			rules = append(rules, rule)
		} else {
			global = append(global, rule)
		}
	}
	ctx, rbac, meta := w.t.Context(), w.Client.RbacV1(), metav1.ObjectMeta{Name: w.name}
	// An update creates a role that is not there.
	_, err := rbac.Roles(w.name).Update(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.UpdateOptions{})
	check(w.t, err)
	_, err = rbac.ClusterRoles().Update(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: global}, metav1.UpdateOptions{})
	check(w.t, err)
}

// bind binds the roles of permit to the manager's user.
func (w *world) bind() {
	w.t.Helper()
	ctx, rbac, meta := w.t.Context(), w.Client.RbacV1(), metav1.ObjectMeta{Name: w.name}
	user := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: w.name}}
	_, err := rbac.RoleBindings(w.name).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: user, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: w.name}}, metav1.CreateOptions{})
	check(w.t, err)
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: user, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: w.name}}, metav1.CreateOptions{})
	check(w.t, err)
}

// node adds a node to a pool; empty: to none.
func (w *world) node(name, pool, memory string, labels map[string]string) *kubetest.Node {
	w.t.Helper()
	all := map[string]string{"world": w.name}
	if pool != "" {
		all = w.labels(pool)
	}
	for k, v := range labels {
		all[k] = v
	}
	return w.Node(kubetest.NodeOptions{Name: w.name + "-" + name, Memory: memory, Labels: all})
}

// allocator returns a new allocator with the manager's rights.
func (w *world) allocator() *kubernetes.Allocator {
	w.t.Helper()
	a, err := kubernetes.New(kubernetes.Options{Config: w.config, Kubeconfig: cmp.Or(w.kubeconfig, w.Kubeconfig(w.name, w.name)), Logger: w.log})
	check(w.t, err)
	return a
}

// start starts the manager, which runs until stop or the end of the test.
func (w *world) start() {
	w.t.Helper()
	ln, err := net.Listen("tcp", w.address)
	check(w.t, err)
	w.address = ln.Addr().String()
	opts := w.options
	opts.Allocator, opts.URL, opts.Logger = w.allocator(), "http://"+w.address, slog.New(slog.DiscardHandler)
	m, err := manager.New(opts)
	check(w.t, err)
	served := make(chan error, 1)
	go func() { served <- m.Serve(ln) }()
	ended := false
	w.m, w.client = m, access.Dial(w.address)
	w.stop = func() {
		if ended {
			return
		}
		ended = true
		ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(time.Minute))
		defer cancel()
		if err := errors.Join(m.Close(ctx), <-served); err != nil {
			w.t.Error(err)
		}
	}
}

// until waits until something holds.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	limit := testrun.Patience(time.Minute)
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %v: %s; pods %v", limit, what, w.describe())
		}
	}
}

// describe describes the pods.
func (w *world) describe() (all []string) {
	for _, p := range w.pods() {
		all = append(all, p.Name+" "+string(p.Status.Phase)+" on "+p.Spec.NodeName)
	}
	return all
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.Client.CoreV1().Pods(w.name).List(w.t.Context(), metav1.ListOptions{LabelSelector: kubernetes.VMLabel})
	check(w.t, err)
	return list.Items
}

// empty waits until there are no pods and no secrets.
func (w *world) empty() {
	w.t.Helper()
	w.until("there are no pods and no secrets", func() bool { return len(w.objects()) == 0 })
}

// objects returns the pods and secrets.
func (w *world) objects() (all []metav1.ObjectMeta) {
	w.t.Helper()
	secrets, err := w.Client.CoreV1().Secrets(w.name).List(w.t.Context(), metav1.ListOptions{})
	check(w.t, err)
	for _, s := range secrets.Items {
		all = append(all, s.ObjectMeta)
	}
	for _, p := range w.pods() {
		all = append(all, p.ObjectMeta)
	}
	return all
}

// sleeper creates a pod on a node that asks for memory and processors.
func (w *world) sleeper(name, node, class, memory, cpu string) {
	w.t.Helper()
	size := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceCPU: resource.MustParse(cpu)}
	_, err := w.Client.CoreV1().Pods(w.name).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, PriorityClassName: class,
			Containers: []corev1.Container{{
				Name: "sleep", Image: "sleep", Args: []string{"600"}, Resources: corev1.ResourceRequirements{Requests: size, Limits: size},
			}},
		},
	}, metav1.CreateOptions{})
	check(w.t, err)
	w.until(name+" is bound", func() bool {
		p, err := w.Client.CoreV1().Pods(w.name).Get(w.t.Context(), name, metav1.GetOptions{})
		check(w.t, err)
		return p.Spec.NodeName != ""
	})
}

// events returns the messages of the manager's events about a VM's pod, by reason.
func (w *world) events(vm string) map[string]string {
	w.t.Helper()
	list, err := w.Client.CoreV1().Events(w.name).List(w.t.Context(), metav1.ListOptions{})
	check(w.t, err)
	all := make(map[string]string)
	for _, e := range list.Items {
		if e.Source.Component == "redykv-manager" && e.InvolvedObject.Name == strings.ToLower(vm) {
			all[e.Reason] = e.Message
		}
	}
	return all
}

// allocate calls Allocate, which waits 50 ms.
func (w *world) allocate(req *managerv1.AllocateRequest) (*managerv1.AllocateResponse, error) {
	req.Capacity, req.RegionSize = 1<<20, 1<<20
	req.RequestId, req.WaitMs = cmp.Or(req.RequestId, w.request), 50
	r, err := w.client.Allocate(w.t.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// granted repeats Allocate until the cache has memory.
func (w *world) granted(req *managerv1.AllocateRequest) (got *managerv1.AllocateResponse) {
	w.t.Helper()
	w.until("the cache has memory", func() bool {
		var err error
		got, err = w.allocate(req)
		check(w.t, err)
		return len(got.GetPending()) == 0
	})
	return got
}

// waits repeats Allocate until the cache waits for a reason.
func (w *world) waits(req *managerv1.AllocateRequest, reason string) {
	w.t.Helper()
	w.until("the cache waits: "+reason, func() bool {
		got, err := w.allocate(req)
		check(w.t, err)
		return strings.Contains(strings.Join(got.GetPending(), " "), reason)
	})
}

func (w *world) deallocate(id string) {
	w.t.Helper()
	_, err := w.client.Deallocate(w.t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id}))
	check(w.t, err)
	w.request = rand.Text()
}

// cache is a cache of 1 MiB with known contents.
type cache struct {
	*redytier.Cache
	w        *world
	contents []byte
}

// write creates a cache and fills it.
func (w *world) write(duration time.Duration) *cache {
	w.t.Helper()
	c, err := redytier.Create(w.t.Context(), w.client, redytier.Config{Capacity: 1 << 20, Duration: duration, WaitForLost: true, Logger: slog.New(slog.DiscardHandler)})
	check(w.t, err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(time.Minute))
		defer cancel()
		if err := c.Delete(ctx); err != nil {
			w.t.Error("cache:", err)
		}
	})
	all := &cache{Cache: c, w: w, contents: bytes.Repeat([]byte("0123456789abcdef"), 1<<16)}
	all.fill()
	return all
}

func (c *cache) fill() {
	c.w.t.Helper()
	done := make(chan error, 1)
	check(c.w.t, c.Write(c.w.t.Context(), c.contents, 0, func(_ int, err error) { done <- err }))
	check(c.w.t, <-done)
}

// vm returns the VM that has the memory.
func (c *cache) vm() string { return c.Regions()[0].VM }

// moved waits until the memory is on another VM than before.
func (c *cache) moved(from string) {
	c.w.t.Helper()
	c.w.until("the cache is on another VM", func() bool {
		r := c.Regions()[0]
		return r.VM != from && r.Target == "" && r.State == redytier.Stable
	})
}

// survived checks that all that was written is there, and was never lost.
func (c *cache) survived() {
	c.w.t.Helper()
	got, done := make([]byte, len(c.contents)), make(chan error, 1)
	check(c.w.t, c.Read(c.w.t.Context(), got, 0, func(_ int, err error) { done <- err }))
	check(c.w.t, <-done)
	if !bytes.Equal(got, c.contents) || c.Regions()[0].Epoch != 0 {
		c.w.t.Errorf("contents are lost: epoch %d", c.Regions()[0].Epoch)
	}
}
