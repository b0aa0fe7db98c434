package kubernetes_test

import (
	"regexp"
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
	"github.com/redykv/redykv/manager/allocator/kubernetes"
)

// The tests share one cluster, as each of them uses a namespace, nodes and a manager of its own.
func TestCluster(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *kubetest.Cluster){
		"Room": testRoom, "GivenUp": testGivenUp, "Preempted": testPreempted, "Drained": testDrained,
		"Disrupted": testDisrupted, "Killed": testKilled, "Lost": testLost, "Vanished": testVanished, "Replaced": testReplaced, "NeverRegisters": testNeverRegisters,
		"Late": testLate, "Fenced": testFenced, "TakesOver": testTakesOver, "LateDeletion": testLateDeletion, "EndedLaunchedAgain": testEndedLaunchedAgain, "LateLaunchedAgain": testLateLaunchedAgain, "KubeletRestarts": testKubeletRestarts,
		"Offers": testOffers, "TooFar": testTooFar, "Clients": testClients, "Stranded": testStranded, "Names": testNames,
		"Rights": testRights, "Watched": testWatched, "Refused": testRefused, "Quota": testQuota, "Kubeconfig": testKubeconfig,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// A pod waits for room, with the scheduler's reason, and then lends its memory.
func testRoom(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare", Cores: 1})
	w.node("small", "spare", "32Mi", nil)
	w.start()
	w.waits(&managerv1.AllocateRequest{}, "Insufficient memory")
	w.node("large", "spare", "1Gi", nil)
	got := w.granted(&managerv1.AllocateRequest{})
	pods := w.pods()
	if len(pods) != 1 || pods[0].Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Fatalf("%d pods, of class %v", len(pods), pods[0].Status.QOSClass)
	}
	w.deallocate(got.GetCacheId())
	w.empty()
}

// A request that is given up, or whose client has gone, leaves no pod.
func testGivenUp(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	w.node("small", "spare", "32Mi", nil)
	w.start()
	w.waits(&managerv1.AllocateRequest{}, "Insufficient memory")
	got, err := w.allocate(&managerv1.AllocateRequest{})
	check(t, err)
	out := w.command("cache", "describe", got.GetCacheId(), "--manager", w.address)
	if !regexp.MustCompile("pending: VM .* of type spare waits: pod givenup/.*Insufficient memory").MatchString(out) {
		t.Errorf("a cache that waits is described as\n%s", out)
	}
	w.deallocate(got.GetCacheId())
	w.empty()
}

// A pod of a higher priority takes a spot pod's node: the cache moves during the grace period.
func testPreempted(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spot", Spot: true, NoticeSeconds: 300, PriorityClass: "spot"})
	first := w.node("first", "spot", "200Mi", nil)
	w.start()
	cache := w.write(time.Hour)
	vm := cache.vm()
	w.node("second", "spot", "200Mi", nil)
	w.sleeper("urgent", first.Name, "urgent", "150Mi", "1")
	cache.moved(vm)
	cache.survived()
	w.until("the pod is gone", func() bool { return len(w.pods()) == 1 })
	for reason, want := range map[string]string{"Reclaimed": "PreemptionByScheduler", "Terminated": "PreemptionByScheduler", "Launched": cache.ID()} {
		w.until("an event "+reason, func() bool { return strings.Contains(w.events(vm)[reason], want) })
	}
	w.until("the cache has left the VM", func() bool { return w.m.Metrics().NoticeLeft.Count > 0 })
	if n := w.m.Metrics(); n.Reclaimed != 1 || n.NoticeLeft.Count != 1 {
		t.Errorf("%d reclaims, %d caches left a VM in time", n.Reclaimed, n.NoticeLeft.Count)
	}
}

// onFirst returns the world of a subtest with a cache on a VM of node first, and room for it on
// another node.
func onFirst(t *testing.T, c *kubetest.Cluster, pool kubernetes.Pool, change ...func(*manager.Options)) (w *world, first *kubetest.Node, written *cache, vm string) {
	t.Helper()
	w = newWorld(t, c, pool)
	first = w.node("first", pool.Name, "200Mi", nil)
	for _, f := range change {
		f(&w.options)
	}
	w.start()
	written = w.write(0)
	vm = written.vm()
	w.node("second", pool.Name, "200Mi", nil)
	return w, first, written, vm
}

// A node is drained: the cache moves during the grace period.
func testDrained(t *testing.T, c *kubetest.Cluster) {
	w, first, cache, vm := onFirst(t, c, kubernetes.Pool{Name: "spare", NoticeSeconds: 300})
	check(t, first.Drain(t.Context()))
	cache.moved(vm)
	cache.survived()
	w.until("the pod is gone", func() bool { return len(w.pods()) == 1 })
}

// A pod has the condition of one that is about to be evicted: its grace period is a notice already.
func testDisrupted(t *testing.T, c *kubetest.Cluster) {
	w, _, cache, vm := onFirst(t, c, kubernetes.Pool{Name: "spare", NoticeSeconds: 300})
	pod := w.pods()[0]
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", Message: "the node is shut down", LastTransitionTime: metav1.Now(),
	})
	_, err := c.Client.CoreV1().Pods(w.name).UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
	check(t, err)
	cache.moved(vm)
	cache.survived()
	w.until("an event Reclaimed", func() bool {
		return strings.Contains(w.events(vm)["Reclaimed"], "TerminationByKubelet: the node is shut down")
	})
}

// The process of a pod is killed: the cache gets other memory.
func testKilled(t *testing.T, c *kubetest.Cluster) {
	w, first, cache, vm := onFirst(t, c, kubernetes.Pool{Name: "spare"})
	if !first.Kill(w.name, strings.ToLower(vm)) {
		t.Fatal("the pod does not run")
	}
	cache.moved(vm)
	cache.fill()
	w.until("the pod is gone", func() bool { return len(w.pods()) == 1 })
	w.until("the VM has failed", func() bool { return w.m.Metrics().Failed > 0 })
	if n := w.m.Metrics(); n.Failed != 1 || n.Reclaimed != 0 {
		t.Errorf("%d VMs failed, %d were reclaimed", n.Failed, n.Reclaimed)
	}
}

// A node is lost, and the cluster says so: the cache gets other memory, and the pod is deleted
// without its kubelet.
func testLost(t *testing.T, c *kubetest.Cluster) {
	w, first, cache, vm := onFirst(t, c, kubernetes.Pool{Name: "spare"})
	first.Lose()
	check(t, c.NotReady(t.Context(), first.Name))
	cache.moved(vm)
	cache.fill()
	w.until("the pod is gone", func() bool { return len(w.pods()) == 1 })
	check(t, c.Collect(t.Context(), first.Name))
}

// A node vanishes, and the cluster has not noticed: missing heartbeats and broken connections
// tell.
func testVanished(t *testing.T, c *kubetest.Cluster) {
	w, first, cache, vm := onFirst(t, c, kubernetes.Pool{Name: "spare"}, func(o *manager.Options) { o.Silence = 3 * time.Second })
	first.Lose()
	cache.moved(vm)
	cache.fill()
	if pods := w.pods(); len(pods) != 2 {
		t.Errorf("pods %v: that of the lost node is still there", w.describe())
	}
	check(t, c.Collect(t.Context(), first.Name))
	w.until("the pod is gone", func() bool { return len(w.pods()) == 1 })
}

// The kubelet of a node stops, and its pods go on: no cache loses memory.
func testKubeletRestarts(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	first := w.node("first", "spare", "200Mi", nil)
	w.options.Silence = time.Minute
	w.start()
	cache := w.write(0)
	vm := cache.vm()
	check(t, c.NotReady(t.Context(), first.Name))
	w.until("the pool takes no pods", func() bool {
		offers, err := w.client.ListOffers(t.Context(), connect.NewRequest(&managerv1.ListOffersRequest{}))
		check(t, err)
		o := offers.Msg.GetOffers()[0]
		return o.GetAvailable() == 0 && strings.Contains(o.GetNote(), first.Name+" is not ready")
	})
	time.Sleep(3 * time.Second) // several reminders, which must change nothing
	cache.survived()
	if n := w.m.Metrics(); cache.vm() != vm || n.Failed != 0 {
		t.Errorf("%d VMs failed", n.Failed)
	}
}

// A manager is replaced while a node is drained: it takes up the pods that its caches have, and
// removes others, with secrets that nobody has.
func testReplaced(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare", NoticeSeconds: 300})
	first := w.node("first", "spare", "200Mi", nil)
	w.options.State = t.TempDir()
	w.start()
	cache := w.write(0)
	vm := cache.vm()
	made := catalogOf(&w.pods()[0])
	w.stop()
	second := w.node("second", "spare", "400Mi", nil)
	labels := map[string]string{kubernetes.OwnerLabel: "redykv", kubernetes.VMLabel: "vm-NOBODY", kubernetes.PoolLabel: "spare"}
	size := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	_, err := c.Client.CoreV1().Pods(w.name).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "vm-nobody", Labels: labels, Annotations: made},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: second.Name},
			Containers:   []corev1.Container{{Name: "redykv", Image: "sleep", Args: []string{"600"}, Resources: corev1.ResourceRequirements{Requests: size}}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	labels[kubernetes.VMLabel] = "vm-NEVER"
	_, err = c.Client.CoreV1().Secrets(w.name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "vm-never", Labels: labels, Annotations: made},
	}, metav1.CreateOptions{})
	check(t, err)
	check(t, first.Drain(t.Context()))
	w.start()
	cache.moved(vm)
	cache.survived()
	w.until("one pod and its secret are left", func() bool {
		secrets, err := c.Client.CoreV1().Secrets(w.name).List(t.Context(), metav1.ListOptions{})
		check(t, err)
		pods := w.pods()
		return len(pods) == 1 && len(secrets.Items) == 1 && pods[0].Name == secrets.Items[0].Name && pods[0].Name == strings.ToLower(cache.vm())
	})
	cache.survived()
}

// catalogOf returns the annotation with the catalog of the manager that made a pod.
func catalogOf(p *corev1.Pod) map[string]string {
	return map[string]string{kubernetes.CatalogAnnotation: p.Annotations[kubernetes.CatalogAnnotation]}
}

// A pod whose server never registers fails the request, and is gone.
func testNeverRegisters(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	w.config.Template.Spec.Containers[0].Image, w.config.Template.Spec.Containers[0].Args = "redykv", []string{"cacheserver", "--client-timeout", "0s"}
	w.node("node", "spare", "1Gi", nil)
	w.start()
	failed := func(want string) {
		t.Helper()
		var err error
		w.until("the request fails", func() bool {
			_, err = w.allocate(&managerv1.AllocateRequest{})
			return err != nil
		})
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q: want one line with %q", err, want)
		}
		w.empty()
	}
	failed("--client-timeout 0s")
	w.stop()
	w.config.Template.Spec.Containers[0].Image, w.config.Template.Spec.Containers[0].Args = "sh", nil
	w.options.LaunchTimeout = time.Second
	w.start()
	failed("has not registered")
}

// A pod that is created when its VM has been terminated, by a request that was late, is deleted.
func testLate(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	w.node("node", "spare", "1Gi", nil)
	w.start()
	w.granted(&managerv1.AllocateRequest{})
	late := w.pods()[0]
	got, err := w.allocate(&managerv1.AllocateRequest{})
	check(t, err)
	w.deallocate(got.GetCacheId())
	w.empty()
	late.ObjectMeta = metav1.ObjectMeta{Name: late.Name, Labels: late.Labels, Annotations: catalogOf(&late)}
	late.Spec.NodeName = ""
	_, err = c.Client.CoreV1().Pods(w.name).Create(t.Context(), &late, metav1.CreateOptions{})
	check(t, err)
	w.empty()
}
