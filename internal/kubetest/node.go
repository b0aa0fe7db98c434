package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
)

// NodeOptions describe a node.
type NodeOptions struct {
	Name   string
	Memory string // allocatable, such as 4Gi
	CPU    string // default: 4
	Labels map[string]string
	Taints []corev1.Taint
	// Lease is the interval at which the kubelet renews the node's lease. Default: 1 s.
	Lease time.Duration
}

// Node is a node and its kubelet, which runs until the test ends or the node is lost.
type Node struct {
	Name string

	c       *Cluster
	opts    NodeOptions
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex // guards pods
	pods map[types.UID]*pod
}

// Node registers a node, which is ready when it returns.
func (c *Cluster) Node(o NodeOptions) *Node {
	c.t.Helper()
	if o.CPU == "" {
		o.CPU = "4"
	}
	if o.Lease == 0 {
		o.Lease = time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{Name: o.Name, c: c, opts: o, cancel: cancel, pods: make(map[types.UID]*pod)}
	c.t.Cleanup(n.stop)
	labels := map[string]string{corev1.LabelHostname: o.Name, corev1.LabelOSStable: "linux"}
	for k, v := range o.Labels {
		labels[k] = v
	}
	nodes := c.Client.CoreV1().Nodes()
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: labels}, Spec: corev1.NodeSpec{Taints: o.Taints}}, metav1.CreateOptions{})
	c.check(err)
	// Admission taints a new node until it is ready, for the node controller to clear.
	c.change(ctx, o.Name, func(n *corev1.Node) error {
		n.Spec.Taints = o.Taints
		_, err := nodes.Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
	c.change(ctx, o.Name, func(n *corev1.Node) error {
		n.Status.Capacity = corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse(o.Memory), corev1.ResourceCPU: resource.MustParse(o.CPU), corev1.ResourcePods: resource.MustParse("110"),
		}
		n.Status.Allocatable = n.Status.Capacity
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.host}, {Type: corev1.NodeHostName, Address: o.Name}}
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}
		_, err := nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
	lease, err := c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &o.Name, RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}, metav1.CreateOptions{})
	c.check(err)
	n.running.Go(func() { n.renew(ctx, lease) })
	n.running.Go(func() { n.watch(ctx) })
	return n
}

// change changes a node, which a controller may change at the same time.
func (c *Cluster) change(ctx context.Context, name string, change func(*corev1.Node) error) {
	c.t.Helper()
	c.check(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return change(n)
	}))
}

// renew renews the node's lease.
func (n *Node) renew(ctx context.Context, lease *coordinationv1.Lease) {
	leases := n.c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	ticker := time.NewTicker(n.opts.Lease)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
			lease = renewed
		}
	}
}

// watch runs the pods that are bound to the node. A watch that ends is begun again.
func (n *Node) watch(ctx context.Context) {
	pods := n.c.Client.CoreV1().Pods(metav1.NamespaceAll)
	bound := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String()}
	for ctx.Err() == nil {
		list, err := pods.List(ctx, bound)
		if err != nil {
			continue
		}
		for i := range list.Items {
			n.see(ctx, &list.Items[i])
		}
		bound.ResourceVersion = list.ResourceVersion
		events, err := pods.Watch(ctx, bound)
		bound.ResourceVersion = ""
		if err != nil {
			continue
		}
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
				n.see(ctx, p)
			} else if ok { // deleted without grace
				n.see(ctx, gone(p))
			}
		}
	}
}

// gone returns a pod that is to end at once.
func gone(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64)
	return p
}

// see starts a pod that is new and ends one that is deleted.
func (n *Node) see(ctx context.Context, p *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	runs := n.pods[p.UID]
	if runs == nil && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending {
		runs = &pod{n: n, object: p, ended: make(chan struct{})}
		n.pods[p.UID] = runs
		n.running.Go(func() { runs.run(ctx) })
	}
	switch {
	case p.DeletionTimestamp == nil:
	case runs != nil:
		runs.end(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	default:
		n.running.Go(func() { n.remove(ctx, p) })
	}
}

// remove removes the object of a pod that does not run.
func (n *Node) remove(ctx context.Context, p *corev1.Pod) {
	err := n.c.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
	})
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		fmt.Fprintln(os.Stderr, "kubetest: pod not removed:", err)
	}
}

// Lose ends the kubelet and the processes of the pods at once. The API server is not told, as
// if the machine had lost its power; nor are those who have connections to sandboxes.
func (n *Node) Lose() {
	n.mu.Lock()
	for _, p := range n.pods {
		p.cut()
	}
	n.mu.Unlock()
	n.stop()
}

// Kill kills the process of a pod, which the kubelet may start again; false: the node does not
// run such a pod.
func (n *Node) Kill(namespace, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.object.Namespace == namespace && p.object.Name == name && p.crash() {
			return true
		}
	}
	return false
}

func (n *Node) stop() {
	n.cancel()
	n.mu.Lock()
	pods := n.pods
	n.pods = nil
	n.mu.Unlock()
	for _, p := range pods {
		p.kill()
	}
	n.running.Wait()
}

// NotReady does to a lost node what the node controller does when its lease is old.
func (c *Cluster) NotReady(ctx context.Context, node string) error {
	nodes := c.Client.CoreV1().Nodes()
	o, err := nodes.Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		o.Spec.Taints = append(o.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect, TimeAdded: &now})
	}
	if o, err = nodes.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for i := range o.Status.Conditions {
		if r := &o.Status.Conditions[i]; r.Type == corev1.NodeReady {
			r.Status, r.Reason, r.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", now
		}
	}
	_, err = nodes.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

// Collect deletes a lost node and its pods, as a cloud's controller and the pod collector do.
func (c *Cluster) Collect(ctx context.Context, node string) error {
	pods, err := c.on(ctx, node)
	for _, p := range pods {
		err = errors.Join(err, c.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	return errors.Join(err, c.Client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}))
}

// on lists the pods that are bound to a node.
func (c *Cluster) on(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Drain makes the node take no new pods, and evicts those that it has.
func (n *Node) Drain(ctx context.Context) error {
	_, err := n.c.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	pods, err := n.c.on(ctx, n.Name)
	for _, p := range pods {
		err = errors.Join(err, n.c.Client.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}}))
	}
	return err
}
