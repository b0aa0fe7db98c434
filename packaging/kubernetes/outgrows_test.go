package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/kubetest"
	"github.com/redykv/redykv/internal/testrun"
)

var (
	outgrowsMemory = flag.Int64("outgrows.memory", 64, "local memory of TestOutgrows's store, in MiB; it has an eight times larger cache")
	outgrowsJSON   = flag.String("outgrows.json", "", "`file` for the rows of TestOutgrows")
)

// outgrown is a store that the manifests started, with more data than local memory, under load.
type outgrown struct {
	*cluster
	spare, general []*kubetest.Node
	load           *load
	out            *json.Encoder
}

// A store whose data are eight times its memory keeps them in the memory that other nodes have
// left. Nodes are drained and lost, pods preempted, a manager killed, and the store itself moves:
// no read is wrong, and requests fail only while the store moves.
func TestOutgrows(t *testing.T) {
	testrun.SkipUnlessSoak(t, "its cluster needs minutes, and processors of its own")
	testrun.SkipRaced(t, "the race detector does not see its processes")
	o := newOutgrown(t)
	o.until("the store serves", func() (bool, error) { return len(o.Endpoints("redykv", "redykv-store")) > 0, nil })
	size := 4 << 10
	o.load = newLoad(o.connect(), int(*outgrowsMemory)<<20*15/2/size, size)
	o.check(o.load.fill(t.Context()))
	o.until("the store has its cache", o.whole)

	ctx, stop := context.WithCancel(t.Context())
	var loads sync.WaitGroup
	loads.Go(func() { o.load.run(ctx) })
	defer func() {
		stop()
		loads.Wait()
	}()
	o.event("nothing", func() {})
	failures := o.failures()
	o.event("a node is drained", func() {
		n := o.busiest()
		o.bash("kubectl drain " + n.Name + " --force --ignore-daemonsets --timeout=" + patience.String())
	})
	o.bash("kubectl uncordon " + o.spare[0].Name + " " + o.spare[1].Name + " " + o.spare[2].Name + " " + o.spare[3].Name)
	o.event("a spot pod is preempted", o.preempt)
	if n := o.failures(); n != failures {
		t.Errorf("%d VMs failed: memory was lost, and did not move", n-failures)
	}
	o.event("a node is lost", func() {
		n := o.busiest()
		n.Lose()
		o.until(n.Name+" is not ready", func() (bool, error) { return len(o.memoryPods(n.Name)) == 0, nil })
	})
	o.event("the leading manager is killed", func() {
		leader, _, err := o.describe()
		o.check(err)
		pod := o.podAt(leader)
		if !slices.ContainsFunc(o.general, func(n *kubetest.Node) bool { return n.Kill("redykv", pod.Name) }) {
			t.Fatalf("manager %s does not run", pod.Name)
		}
		o.until("the other manager leads", func() (bool, error) {
			now, _, err := o.describe()
			return err == nil && now != leader, err
		})
	})
	before := o.load.failed.Load()
	o.event("the store moves to another node", o.move)
	if o.load.failed.Load() == before {
		t.Error("no request failed while the store moved: it cannot have moved")
	}
	stop()
	loads.Wait()
	o.check(o.load.verify(t.Context()))
	o.cost()
}

// outgrowsEdit makes the manifests those of two kinds of nodes, with other sizes: of the store's
// memory, and the same with a unit for pods; and without a bucket, as the store keeps its disk.
const outgrowsEdit = `
cd packaging/kubernetes
sed -i 's/--memory=1GiB/--memory=%[1]dMiB/; s/--cache=8GiB/--cache=%[2]dMiB/; /name: REDYKV_BUCKET/,+4d' store/store.yaml
sed -i 's|^      enableServiceLinks: false|      nodeSelector: {example.com/pool: general}\n&|' store/store.yaml manager/manager.yaml etcd/etcd.yaml
sed -i 's|kubernetes.io/os: linux|example.com/pool: spare|; s/memory: 2Gi/memory: %[3]dMi/; s/memory: 1Gi/memory: %[1]dMi/' manager/pools.yaml
sed -i '/command: /d' etcd/etcd.yaml
`

// newOutgrown runs the commands of the guide in a cluster with four nodes that have memory left,
// for four of the smallest pods each, and three for what else there is.
func newOutgrown(t *testing.T) *outgrown {
	unit := *outgrowsMemory
	o := &outgrown{out: json.NewEncoder(t.Output())}
	o.cluster = fromEmpty(t, kubetest.StartFull, fmt.Sprintf(outgrowsEdit, unit, 8*unit, 2*unit))
	if *outgrowsJSON != "" {
		file, err := os.Create(*outgrowsJSON)
		o.check(err)
		t.Cleanup(func() { o.check(file.Close()) })
		o.out = json.NewEncoder(file)
	}
	etcd, err := etcdtest.Program()
	o.check(err)
	o.Programs["quay.io/coreos/etcd:v3.6.16"] = []string{etcd}
	o.Programs["sleep"] = []string{"/usr/bin/sleep", "infinity"}
	o.disks(2)
	for i := range 4 {
		o.spare = append(o.spare, o.Node(kubetest.NodeOptions{
			Name: fmt.Sprint("spare-", i), Memory: fmt.Sprint(4*(unit+64), "Mi"), Labels: map[string]string{"example.com/pool": "spare"},
		}))
	}
	for i := range 3 {
		o.general = append(o.general, o.Node(kubetest.NodeOptions{Name: fmt.Sprint("general-", i), Memory: "8Gi", Labels: map[string]string{"example.com/pool": "general"}}))
	}
	return o
}

// secret returns a value of a secret.
func (o *outgrown) secret(name, key string) string {
	s, err := o.Client.CoreV1().Secrets("redykv").Get(o.t.Context(), name, metav1.GetOptions{})
	o.check(err)
	return string(s.Data[key])
}

// connect returns a client of the store, wherever it is. It tries nothing twice.
func (o *outgrown) connect() *redis.Client {
	client := redis.NewClient(&redis.Options{
		Password: o.secret("redykv-store", "password"), MaxRetries: -1, ReadTimeout: testrun.Patience(time.Minute), DialerRetries: 1,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			at := o.Endpoints("redykv", "redykv-store")
			if len(at) == 0 {
				return nil, errors.New("no pod of the store is ready")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", at[0]+":6380")
		},
	})
	o.t.Cleanup(func() { _ = client.Close() })
	return client
}

// patience is longer than the notice of a reclaim.
var patience = testrun.Patience(3 * time.Minute)

// until waits until a condition holds, longer than [kubetest.Cluster.Until].
func (o *outgrown) until(what string, holds func() (bool, error)) {
	o.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ok, err := holds()
		switch {
		case ok:
			return
		case time.Now().After(end):
			_, caches, _ := o.describe()
			o.t.Fatalf("it does not hold that %s: %v\n%+v\n%s", what, err, caches, o.Pods())
		}
	}
}

// whole reports whether the store has all of its remote memory.
func (o *outgrown) whole() (bool, error) {
	client := o.connect()
	defer func() { _ = client.Close() }()
	info, err := client.Info(o.t.Context(), "stats").Result()
	for line := range strings.Lines(info) {
		if strings.Contains(line, "name=redy,") {
			return strings.Contains(line, "healthy=true,complete=true"), fmt.Errorf("%s", line)
		}
	}
	return false, err
}

// described is a part of the leader's answer to Describe.
type described struct {
	Caches []struct {
		ID          string `json:"id"`
		PriceMicros string `json:"priceMicros"`
	} `json:"caches"`
}

// describe returns the address of the leading manager, and its caches.
func (o *outgrown) describe() (leader string, d described, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for _, at := range o.Endpoints("redykv", "redykv-manager") {
		url := "https://" + at + ":7070/redykv.manager.v1.ManagerService/Describe"
		request, e := http.NewRequestWithContext(o.t.Context(), http.MethodPost, url, bytes.NewReader([]byte("{}")))
		o.check(e)
		request.Header.Set("Authorization", "Bearer "+o.secret("redykv-tokens", "operator"))
		request.Header.Set("Content-Type", "application/json")
		answer, e := client.Do(request)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		if answer.StatusCode == http.StatusOK {
			return at, d, errors.Join(json.NewDecoder(answer.Body).Decode(&d), answer.Body.Close())
		}
		err = errors.Join(err, fmt.Errorf("%s: %s", at, answer.Status), answer.Body.Close())
	}
	return "", d, errors.Join(err, errors.New("no manager leads"))
}

// failures returns the number of VMs that failed since the leading manager was started.
func (o *outgrown) failures() (n int) {
	leader, _, err := o.describe()
	o.check(err)
	answer, err := http.Get("http://" + leader + ":7090/metrics")
	o.check(err)
	text, err := io.ReadAll(answer.Body)
	o.check(errors.Join(err, answer.Body.Close()))
	_, rest, found := strings.Cut(string(text), "\nredykv_manager_failures_total ")
	if _, err := fmt.Sscan(rest, &n); !found || err != nil {
		o.t.Fatalf("no number of failed VMs in the metrics: %v", err)
	}
	return n
}

// price returns what all caches cost, in dollars an hour.
func (o *outgrown) price() (dollars float64) {
	_, d, err := o.describe()
	o.check(err)
	for _, c := range d.Caches {
		micros, _ := strconv.ParseFloat(c.PriceMicros, 64) // missing: 0
		dollars += micros / 1e6
	}
	return dollars
}

// pods returns the pods of a namespace that are bound to a node; empty: to any.
func (o *outgrown) pods(namespace, node string) []corev1.Pod {
	opts := metav1.ListOptions{}
	if node != "" {
		opts.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	list, err := o.Client.CoreV1().Pods(namespace).List(o.t.Context(), opts)
	o.check(err)
	return list.Items
}

func (o *outgrown) memoryPods(node string) []corev1.Pod { return o.pods("redykv-memory", node) }

// busiest returns the node with the most pods that lend memory.
func (o *outgrown) busiest() *kubetest.Node {
	return slices.MaxFunc(o.spare, func(a, b *kubetest.Node) int { return len(o.memoryPods(a.Name)) - len(o.memoryPods(b.Name)) })
}

// podAt returns the pod of redykv with an address.
func (o *outgrown) podAt(ip string) corev1.Pod {
	all := o.pods("redykv", "")
	i := slices.IndexFunc(all, func(p corev1.Pod) bool { return p.Status.PodIP == ip })
	if i < 0 {
		o.t.Fatalf("no pod has address %s", ip)
	}
	return all[i]
}

// preempt makes an ordinary pod that needs the memory that one on the busiest node lends.
func (o *outgrown) preempt() {
	n := o.busiest()
	lent := o.memoryPods(n.Name)
	taken := resource.Quantity{}
	for _, p := range lent {
		taken.Add(*p.Spec.Containers[0].Resources.Requests.Memory())
	}
	need := resource.MustParse(fmt.Sprint(4*(*outgrowsMemory+64), "Mi"))
	need.Sub(taken)
	need.Add(resource.MustParse("1Mi"))
	size := corev1.ResourceList{corev1.ResourceMemory: need}
	_, err := o.Client.CoreV1().Pods("default").Create(o.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "ordinary"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: n.Name},
			Containers:   []corev1.Container{{Name: "sleep", Image: "sleep", Resources: corev1.ResourceRequirements{Requests: size, Limits: size}}},
		},
	}, metav1.CreateOptions{})
	o.check(err)
	o.until("the ordinary pod runs", func() (bool, error) {
		p, err := o.Client.CoreV1().Pods("default").Get(o.t.Context(), "ordinary", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	})
	if left := len(o.memoryPods(n.Name)); left >= len(lent) {
		o.t.Fatalf("%d pods still lend memory on %s", left, n.Name)
	}
}

// move evicts the store's pod, and lets it start on another node.
func (o *outgrown) move() {
	at := o.Endpoints("redykv", "redykv-store")
	pod := o.podAt(at[0])
	o.bash("kubectl cordon " + pod.Spec.NodeName)
	o.check(o.Client.PolicyV1().Evictions("redykv").Evict(o.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: "redykv"}}))
	o.until("the store serves on another node", func() (bool, error) {
		now := o.Endpoints("redykv", "redykv-store")
		return len(now) == 1 && now[0] != at[0] && o.podAt(now[0]).Spec.NodeName != pod.Spec.NodeName, nil
	})
}

// row is what an event did.
type row struct {
	What     string  `json:"what"`
	Before   float64 `json:"before"`  // replies a second
	Least    float64 `json:"least"`   // share of it, in the slowest second
	Below    float64 `json:"below_s"` // longest time in which each second was below backShare of it
	Took     float64 `json:"took_s"`  // what was done: a drain, for instance, until all pods are gone
	Restored float64 `json:"whole_s"` // time until the store had all of its remote memory again
	Failed   int64   `json:"failed"`  // requests
	Wrong    int     `json:"wrong"`   // replies
	Replies  int64   `json:"replies"` // during the event, all of which were checked
	Price    float64 `json:"price"`   // of the cache after it, in dollars an hour
}

// backShare is the share of the throughput before an event at which it is back. It is awaited for
// awaitBack after the store has its memory again.
const (
	backShare = 0.8
	awaitBack = 30 * time.Second
)

// event does something to the cluster, and waits until the store has its memory and its
// throughput again.
func (o *outgrown) event(what string, do func()) {
	o.t.Helper()
	start := time.Now()
	o.until("there is a load", func() (bool, error) {
		rates, _ := o.load.rates(start)
		return len(rates) >= 12, nil
	})
	rates, _ := o.load.rates(start)
	slices.Sort(rates)
	begin := time.Now()
	r := row{What: what, Before: rates[len(rates)/2]}
	failed, replies := o.load.failed.Load(), o.load.replies.Load()
	do()
	r.Took = time.Since(begin).Seconds()
	o.until("the store has its memory again", o.whole)
	r.Restored = time.Since(begin).Seconds()
	settled := time.Now()
	o.until("the throughput is back", func() (bool, error) {
		now, _ := o.load.rates(settled)
		if len(now) == 0 {
			return false, errors.New("no replies")
		}
		// If it is not soon, that is reported: the machine may be slower than before.
		back := now[len(now)-1] >= backShare*r.Before
		return back || now[len(now)-1] > 0 && time.Since(settled) > awaitBack, nil
	})
	r.Failed, r.Replies, r.Price = o.load.failed.Load()-failed, o.load.replies.Load()-replies, o.price()
	r.Least, r.Below = o.dip(begin, r.Before)
	for {
		select {
		case err := <-o.load.wrong:
			o.t.Errorf("%v %s: %v", testrun.ErrWrong, what, err)
			r.Wrong++
			continue
		default:
		}
		break
	}
	o.check(o.out.Encode(r))
	if broken := o.load.broken.Swap(nil); broken != nil && !strings.HasPrefix(what, "the store moves") {
		o.t.Errorf("%s: %d requests failed, such as by %v", what, r.Failed, *broken)
	}
}

// dip returns the least share of a throughput since a time, and the longest time for which it
// was below backShare.
func (o *outgrown) dip(since time.Time, before float64) (least, longest float64) {
	rates, ends := o.load.rates(since)
	least = 1
	var from time.Time
	for i, rate := range rates {
		least = min(least, rate/before)
		switch {
		case rate >= backShare*before:
			from = time.Time{}
		case from.IsZero():
			from = ends[i].Add(-window)
		}
		if !from.IsZero() {
			longest = max(longest, ends[i].Sub(from).Seconds())
		}
	}
	return least, longest
}

// cost compares what memory costs by the prices of the pools, for the sizes that the manifests
// have, whose pods lend 2 GiB. Local memory costs as much as that of a pod that is not preempted.
func (o *outgrown) cost() {
	_, config := o.manager()
	perGiB := 0.0
	for _, p := range config.Pools {
		if !p.Spot && p.Cores > 0 {
			perGiB = p.Price / 2
		}
	}
	remote := o.price()
	for _, r := range []struct {
		What    string  `json:"what"`
		Dollars float64 `json:"price"`
	}{
		{"for comparison: 9 GiB of local memory", 9 * perGiB},
		{"1 GiB of local memory and the cache of 8 GiB", perGiB + remote},
	} {
		o.check(o.out.Encode(r))
	}
	if perGiB+remote >= 9*perGiB {
		o.t.Errorf("with remote memory $%g/h, without $%g/h", perGiB+remote, 9*perGiB)
	}
}
