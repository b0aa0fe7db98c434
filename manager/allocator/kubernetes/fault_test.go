package kubernetes_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/manager/allocator/kubernetes"
	"github.com/redykv/redykv/manager/api"
)

// Faults of the configuration are found before anything is called.
func TestConfig(t *testing.T) {
	t.Parallel()
	const good = `
pools:
- {name: spare, nodes: {pool: spare}, memory: 64Mi}
template: {spec: {containers: [{name: redykv, image: redykv}]}}
`
	read := func(text string) error {
		file := filepath.Join(t.TempDir(), "pools.yaml")
		check(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := kubernetes.ReadConfig(file)
		return err
	}
	check(t, read(good))
	for _, c := range []struct{ old, with, want string }{
		{"name: redykv", "name: other", `template: no container "redykv"`},
		{"image: redykv", "image: redykv, resources: {requests: {cpu: 2}, limits: {cpu: 1}}", "template: container redykv: limit of cpu 1 is below its request 2"},
		{"image: redykv}", "image: redykv}, {name: log, image: log, resources: {requests: {memory: 2Mi}, limits: {memory: 1Mi}}}", "template: container log: limit of memory 1Mi is below its request 2Mi"},
		{"{pool: spare}", "{}", "pool spare: nodes: want the labels of its nodes"},
		{"64Mi", "64Ki", "pool spare: memory 64Ki: want 1Mi or more"},
		{"64Mi", "many", "quantities must match"},
		{"64Mi", "64Mi, price: -1", "pool spare: price -1: want 0 to"},
		{"64Mi", "64Mi, cores: 256", "pool spare: cores 256: want 0 to 255"},
		{"64Mi", "64Mi, noticeSeconds: -1", "pool spare: noticeSeconds -1: want 1 to a day"},
		{"64Mi", "64Mi, colour: red", `unknown field "colour"`},
		{"template:", "- {name: spare, nodes: {pool: x}, memory: 64Mi}\ntemplate:", `pool 1: name "spare": want a label value that no other pool has`},
		{"template:", "owner: a b\ntemplate:", `owner "a b": `},
		{"template:", "namespace: A\ntemplate:", `namespace "A": `},
		{good[:strings.Index(good, "template")], "pools: []\n", "pools: want at least one"},
		{good, "pools: [", "yaml"},
	} {
		err := read(strings.Replace(good, c.old, c.with, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("with %s: %v: want one line with %s", c.with, err, c.want)
		}
	}
	if _, err := kubernetes.ReadConfig("/nowhere/pools.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// checkFails runs redykv manager check, which must print a line for each of the faults, and
// nothing else.
func (w *world) checkFails(kubeconfig string, faults ...string) {
	w.t.Helper()
	text, err := yaml.Marshal(w.config)
	check(w.t, err)
	file := filepath.Join(w.t.TempDir(), "pools.yaml")
	check(w.t, os.WriteFile(file, text, 0o600))
	args := []string{"manager", "check", "--allocator", "kubernetes", "--kubernetes", file, "--kubeconfig", kubeconfig}
	out, err := exec.CommandContext(w.t.Context(), w.Programs["redykv"][0], args...).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(faults) == 0 {
		if err != nil || lines[0] != "no faults found" {
			w.t.Errorf("check: %v\n%s", err, out)
		}
		return
	}
	if err == nil || len(lines) != len(faults) {
		w.t.Fatalf("check: %v\n%s\nwant %d lines", err, out, len(faults))
	}
	for i, want := range faults {
		if !strings.Contains(lines[i], want) {
			w.t.Errorf("check printed %q: want %q", lines[i], want)
		}
	}
	if n := len(w.pods()); n > 0 {
		w.t.Errorf("check left %d pods", n)
	}
}

// A kubeconfig that is wrong is one line.
func testKubeconfig(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	w.node("node", "spare", "1Gi", nil)
	good := w.Kubeconfig(w.name, w.name)
	w.checkFails(good)
	text, err := os.ReadFile(good)
	check(t, err)
	closed := httptest.NewServer(nil)
	closed.Close()
	other := httptest.NewUnstartedServer(nil) // has another authority
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	other.StartTLS()
	defer other.Close()
	for name, f := range map[string]struct{ text, want string }{
		"garbage":     {"{[", "kubeconfig: "},
		"empty":       {"", "kubeconfig: "},
		"unreachable": {strings.ReplaceAll(string(text), c.URL, strings.Replace(closed.URL, "http:", "https:", 1)), "connection refused"},
		"authority":   {strings.ReplaceAll(string(text), c.URL, other.URL), "certificate signed by unknown authority"},
		"token":       {strings.ReplaceAll(string(text), "admin-token", "another"), "Unauthorized"},
	} {
		file := filepath.Join(t.TempDir(), name)
		check(t, os.WriteFile(file, []byte(f.text), 0o600))
		w.checkFails(file, f.want)
	}
	w.checkFails(filepath.Join(t.TempDir(), "missing"), "no such file")
}

// The check names each right that is missing. With all of them it finds no faults, and the
// managers of the other tests have no more.
func testRights(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	w.node("node", "spare", "1Gi", nil)
	a := w.allocator()
	all := kubernetes.Rights()
	for i, r := range all {
		w.permit(append(all[:i:i], all[i+1:]...))
		want := fmt.Sprintf("kubernetes allocator: no right to %s %s", r.Verb, r.Resource)
		if r.Namespaced {
			want += " in namespace " + w.name
		}
		var err error
		w.until(want, func() bool {
			err = a.Check(t.Context())
			return err != nil && err.Error() == want
		})
	}
	w.permit(all)
	w.until("no right is missing", func() bool { return a.Check(t.Context()) == nil })
	// What a manager says without the right to launch.
	w.start()
	var rest []kubernetes.Right
	for _, r := range all {
		if r.Verb != "create" || r.Resource != "pods" {
			rest = append(rest, r)
		}
	}
	w.permit(rest)
	w.until("the right has gone", func() bool { return a.Check(t.Context()) != nil })
	_ = w.refused("no right to create pods in namespace " + w.name)
}

// refused checks that Allocate fails with one line, and leaves nothing.
func (w *world) refused(want string) error {
	w.t.Helper()
	var err error
	w.until("the request fails", func() bool {
		_, err = w.allocate(&managerv1.AllocateRequest{})
		return err != nil
	})
	if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		w.t.Errorf("error %q: want one line with %q", err, want)
	}
	w.empty()
	return err
}

// Pools that no pod can be launched in.
func testRefused(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "none"})
	w.start()
	_ = w.refused("none: no node has the labels pool=refused-none")
	config := w.Kubeconfig(w.name, w.name)
	w.checkFails(config, "pool none: no node has the labels pool=refused-none")
	n := w.node("node", "none", "1Gi", nil)
	w.checkFails(config)
	w.config.Pools[0].Cores = 8
	w.checkFails(config, "pool none: a pod requests cpu 8, and no node has more than 4")
	w.config.Pools[0].Cores, w.config.Pools[0].PriorityClass = 0, "unknown"
	w.checkFails(config, "no PriorityClass with name unknown was found")
	w.config.Pools[0].PriorityClass, w.config.ClientNode = "", "nowhere"
	w.checkFails(config, "clientNode: no node nowhere")
	w.config.ClientNode = ""
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"cheap"}}}`, kubernetes.PriceAnnotation)
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	check(t, err)
	w.checkFails(config, `node refused-node: annotation redykv.io/price "cheap": want 0 to 10000 dollars an hour`)
}

// Nodes are watched: their offers last when the API server does not list them any more.
func testWatched(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	w.node("node", "spare", "1Gi", nil)
	w.start()
	available := func() bool {
		offers, err := w.client.ListOffers(t.Context(), connect.NewRequest(&managerv1.ListOffersRequest{}))
		check(t, err)
		return strings.Contains(offers.Msg.GetOffers()[0].GetNote(), w.name+"-node")
	}
	w.granted(&managerv1.AllocateRequest{}) // takes longer than the first list of the watch
	check(t, c.Client.RbacV1().ClusterRoleBindings().Delete(t.Context(), w.name, metav1.DeleteOptions{}))
	w.until("nobody may list nodes", func() bool {
		_, err := w.allocator().Offers(t.Context(), "", "")
		return err != nil && strings.Contains(err.Error(), "no right to list nodes")
	})
	if !available() {
		t.Error("the node is not offered")
	}
}

// A quota that is exhausted.
func testQuota(t *testing.T, c *kubetest.Cluster) {
	w := newWorld(t, c, kubernetes.Pool{Name: "spare"})
	w.node("node", "spare", "1Gi", nil)
	hard := corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("100Mi")}
	quotas := c.Client.CoreV1().ResourceQuotas(w.name)
	q, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	check(t, err)
	// What the quota controller would state.
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("0")}}
	_, err = quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
	check(t, err)
	w.start()
	w.until("the quota is enforced", func() bool {
		err := w.allocator().Check(t.Context())
		return err != nil && strings.Contains(err.Error(), "exceeded quota: small")
	})
	w.checkFails(w.Kubeconfig(w.name, w.name), "pool spare: pods \"vm-check-0\" is forbidden: exceeded quota: small")
	err = w.refused("quota of namespace quota (small, requested: requests.memory=128Mi, used: requests.memory=0, limited: requests.memory=100Mi)")
	var few *api.CapacityError
	if !errors.As(err, &few) {
		t.Errorf("%v is no error about capacity", err)
	}
}
