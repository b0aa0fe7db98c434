package kubernetes_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/plan"
)

// at returns the topology labels of a node.
func at(rack, zone string) map[string]string {
	return map[string]string{"redykv.io/rack": rack, corev1.LabelTopologyZone: zone}
}

// A pool is offered at the distance of its nearest node, at its nodes' highest price, with the
// names of the nodes that take pods, or why there are none.
func testOffers(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(
		t, c, kubernetes.Pool{Name: "here", Price: 0.5}, kubernetes.Pool{Name: "rack", Price: 0.5}, kubernetes.Pool{Name: "zone"},
		kubernetes.Pool{Name: "far", Spot: true, NoticeSeconds: 45}, kubernetes.Pool{Name: "none"}, kubernetes.Pool{Name: "closed"},
	)
	w.config.ClientNode = w.node("client", "here", "1Gi", at("r1", "z1")).Name
	a, b := w.node("a", "rack", "1Gi", at("r1", "z1")), w.node("b", "rack", "1Gi", at("r7", "z7"))
	for n, price := range map[*kubetest.Node]string{a: "0.25", b: "0.75"} {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, kubernetes.PriceAnnotation, price)
		_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		check(t, err)
	}
	w.node("c", "zone", "1Gi", at("r2", "z1"))
	w.node("d", "far", "1Gi", at("r3", "z2"))
	check(t, w.node("e", "closed", "1Gi", nil).Drain(t.Context()))
	got, err := w.allocator().Offers(t.Context(), "", "")
	check(t, err)
	const size = 64 << 20
	want := []plan.Offer{
		{Type: "here", Memory: size, Distance: 1, Price: plan.Dollars(0.5), Available: -1, Note: "nodes offers-client"},
		{Type: "rack", Memory: size, Distance: 1, Price: plan.Dollars(0.75), Available: -1, Note: "nodes offers-a, offers-b"},
		{Type: "zone", Memory: size, Distance: 3, Available: -1, Note: "nodes offers-c"},
		{Type: "far", Memory: size, Distance: 5, Available: -1, Spot: true, Notice: 45 * time.Second, Note: "nodes offers-d"},
		{Type: "none", Memory: size, Note: "no node has the labels pool=offers-none"},
		{Type: "closed", Memory: size, Note: "no node takes pods: offers-e is cordoned"},
	}
	for i, o := range got {
		if o != want[i] {
			t.Errorf("offer %+v: want %+v", o, want[i])
		}
	}
}

// nearModel is a model by which a latency of 6 us is met at a distance of 1 only.
func nearModel(t *testing.T) *model.Model {
	m := model.New(model.Provenance{Transport: "tcp", Network: model.NoNetwork, Host: model.ThisHost(), Revision: "test"})
	for _, distance := range []int{1, 3, 5} {
		n, err := m.Add(&model.Measurement{RecordSize: 64, Distance: distance, Network: model.NoNetwork, ClientCores: 4, QueueDepth: 16})
		check(t, err)
		for at, ok := n.Next(); ok; at, ok = n.Next() {
			flight := float64(at.C * at.B * at.Q)
			latency := 2*float64(distance+1) + flight/float64(at.C)
			p := model.Performance{LatencyUs: latency, Mops: flight / latency}
			check(t, n.Report(at, p, p))
		}
	}
	return m
}

// A pod that is bound too far away for the SLO is deleted, and the cache's VMs are chosen again.
func testTooFar(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "mixed", Price: 0.1, Cores: 1}, kubernetes.Pool{Name: "near", Price: 0.2, Cores: 1})
	w.options.Models, w.options.SLOMargin = []*model.Model{nearModel(t)}, -1
	w.config.ClientNode = w.node("client", "", "1Gi", at("r1", "z1")).Name
	full := w.node("full", "mixed", "200Mi", at("r1", "z1"))
	w.node("far", "mixed", "1Gi", at("r9", "z9"))
	w.node("near", "near", "1Gi", at("r1", "z1"))
	w.sleeper("fills", full.Name, "", "150Mi", "1")
	w.start()
	got := w.granted(&managerv1.AllocateRequest{Slo: &managerv1.Slo{MaxLatencyUs: 6, RecordSize: 64}})
	vm := got.GetGrants()[0].GetVm()
	if vm.GetType() != "near" || vm.GetDistance() != 1 || vm.GetMachine() != "toofar-near" {
		t.Errorf("VM %v: want one of pool near", vm)
	}
	w.until("the distant pod is gone", func() bool { return len(w.pods()) == 1 })
	var far string
	list, err := c.Client.CoreV1().Events(w.name).List(t.Context(), metav1.ListOptions{})
	check(t, err)
	for _, e := range list.Items {
		if e.Reason == "Terminated" {
			far = e.InvolvedObject.Name
		}
	}
	events := w.events(far)
	if !strings.Contains(events["Launched"], "pool mixed") || !strings.Contains(events["Terminated"], "switches") {
		t.Errorf("the distant pod's events: %v", events)
	}
}

// Distances are those between a cache's client and its pods: pods are near the client that asks,
// of the same pool or not.
func testClients(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "all", Price: 0.1, Cores: 1})
	w.options.Models, w.options.SLOMargin = []*model.Model{nearModel(t)}, -1
	for _, rack := range []string{"r1", "r2"} {
		n := w.node(rack, "all", "1Gi", at(rack, "zone-of-"+rack))
		w.sleeper("on-"+rack, n.Name, "", "10Mi", "10m") // so the scheduler knows the node
	}
	w.start()
	for _, rack := range []string{"r1", "r2"} {
		w.until("the manager knows the node of rack "+rack, func() bool {
			offers, err := w.client.ListOffers(t.Context(), connect.NewRequest(&managerv1.ListOffersRequest{Machine: w.name + "-" + rack}))
			check(t, err)
			o := offers.Msg.GetOffers()
			return len(o) > 0 && o[0].GetDistance() == 1
		})
	}
	for i, rack := range []string{"r2", "r1", "r2"} {
		node := w.name + "-" + rack
		got := w.granted(&managerv1.AllocateRequest{
			Slo: &managerv1.Slo{MaxLatencyUs: 6, RecordSize: 64}, Client: &managerv1.Client{Machine: node}, RequestId: fmt.Sprintf("the request number %d", i),
		})
		if vm := got.GetGrants()[0].GetVm(); vm.GetMachine() != node || vm.GetDistance() != 1 {
			t.Errorf("a client on node %s has VM %v", node, vm)
		}
	}
}

// Pods without cores use memory that is stranded on a node whose processors are all taken, and
// are not overcommitted.
func testStranded(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "stranded", Price: 0.1})
	n := w.node("busy", "stranded", "300Mi", nil)
	w.sleeper("fills", n.Name, "", "10Mi", "4")
	w.start()
	w.granted(&managerv1.AllocateRequest{})
	p := w.pods()[0]
	r := p.Spec.Containers[0].Resources
	if p.Status.QOSClass != corev1.PodQOSBurstable || r.Requests.Cpu().Sign() != 0 || r.Requests.Memory().Cmp(*r.Limits.Memory()) != 0 {
		t.Errorf("class %v, resources %v", p.Status.QOSClass, r)
	}
	// 300 MiB are three pods of 128 MiB less one.
	second := w.write(0)
	if second.vm() == p.Labels[kubernetes.VMLabel] {
		t.Error("two caches share a launched VM")
	}
	w.waits(&managerv1.AllocateRequest{RequestId: "a third request, which waits"}, "Insufficient memory")
}

// Commands, events of caches and metrics name nodes, pools and pods as Kubernetes does.
func testNames(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare", Price: 0.25})
	n := w.node("node", "spare", "200Mi", nil)
	w.start()
	cache := w.write(0)
	pod := w.name + "/" + strings.ToLower(cache.vm())
	for _, run := range []struct {
		args []string
		want string
	}{
		{[]string{"vm", "offers"}, `spare +64MiB +0 +\? +\$0\.25/h +any +0 +- +nodes names-node`},
		{[]string{"vm", "list"}, cache.vm() + ` +spare .* up +names-node +` + pod},
		{[]string{"cache", "describe", cache.ID()}, cache.vm() + ` +spare .*/h +` + pod + ` on names-node`},
	} {
		out := w.command(append(run.args, "--manager", w.address)...)
		if !regexp.MustCompile(run.want).MatchString(out) {
			t.Errorf("%v printed\n%s\nwant %s", run.args, out, run.want)
		}
	}
	metrics := w.m.Metrics()
	if vms := metrics.VMs; len(vms) != 1 || vms[0].Machine != n.Name || vms[0].Type != "spare" {
		t.Errorf("metrics of VMs %v", vms)
	}
	if vms := metrics.Named; len(vms) != 1 || vms[0].VM != cache.vm() || vms[0].Name != pod || vms[0].Machine != n.Name || vms[0].Type != "spare" {
		t.Errorf("metrics of named VMs %v", vms)
	}
	check(t, n.Drain(t.Context()))
	w.until("the reclaim is an event of the cache", func() bool {
		out := w.command("cache", "describe", cache.ID(), "--manager", w.address)
		return regexp.MustCompile(`vm reclaimed +` + cache.vm() + ` +pod ` + pod + ` on node names-node: EvictionByEvictionAPI`).MatchString(out)
	})
	w.until("an event Launched", func() bool {
		return w.events(cache.vm())["Launched"] == "for "+cache.ID()+": pool spare, 64MiB with 0 cores, $0.25/h"
	})
}

// command runs a command of redykv, and returns what it prints.
func (w *world) command(args ...string) string {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), w.Programs["redykv"][0], args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("redykv %v: %v\n%s", args, err, out)
	}
	return string(out)
}
