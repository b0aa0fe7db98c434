package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/redykv/redykv/internal/clock"
)

// listOf is a list of objects.
type listOf[L any] interface {
	*L
	runtime.Object
	metav1.ListInterface
}

// follow calls all with a list of objects, and then one with each change, until ctx ends. The
// object of a change that deletes it is gone.
func follow[L any, P listOf[L], O runtime.Object](ctx context.Context, a *Allocator, k kind, all func(*L), one func(o O, gone bool)) {
	for ; ctx.Err() == nil; clock.Sleep(ctx, 200*time.Millisecond) {
		list := P(new(L))
		if err := a.client.list(ctx, k, list); err != nil {
			if ctx.Err() == nil {
				a.log.Warn("not listed", "resource", k.resource, "err", err)
			}
			continue
		}
		all((*L)(list))
		events, err := a.client.watch(ctx, k, list.GetResourceVersion())
		if err != nil {
			continue
		}
		for e := range events.ResultChan() {
			if o, ok := e.Object.(O); ok && e.Type != watch.Error {
				one(o, e.Type == watch.Deleted)
			} else {
				break // the version is too old: list again
			}
		}
		events.Stop()
	}
}

func (a *Allocator) setPods(list *corev1.PodList) {
	a.mu.Lock()
	old := a.pods
	a.pods = make(map[string]*corev1.Pod)
	for i := range list.Items {
		p := &list.Items[i]
		a.pods[p.Name] = p
		delete(old, p.Name)
	}
	a.mu.Unlock()
	for _, p := range old {
		a.report(p, true)
	}
	for i := range list.Items {
		a.report(&list.Items[i], false)
	}
}

func (a *Allocator) setPod(p *corev1.Pod, gone bool) {
	a.mu.Lock()
	if a.pods[p.Name] = p; gone {
		delete(a.pods, p.Name)
	}
	a.mu.Unlock()
	a.report(p, gone)
}

func (a *Allocator) setNodes(list *corev1.NodeList) {
	a.mu.Lock()
	a.nodes = make(map[string]*corev1.Node)
	for i := range list.Items {
		a.nodes[list.Items[i].Name] = &list.Items[i]
	}
	a.mu.Unlock()
	a.reportAll()
}

func (a *Allocator) setNode(n *corev1.Node, gone bool) {
	a.mu.Lock()
	old := a.nodes[n.Name]
	if a.nodes[n.Name] = n; gone {
		delete(a.nodes, n.Name)
	}
	a.mu.Unlock()
	if gone || old == nil || ready(old) != ready(n) {
		a.reportAll()
	}
	if !gone && ready(n) && (old == nil || !ready(old)) {
		a.host.OffersChanged()
	}
}

// retell is the interval at which a new leader is told everything, and for how long: it may not
// lead yet when it hears of it first.
const (
	retell    = time.Second
	retellFor = 10 * time.Second
)

// tell repeats what a new leader was told.
func (a *Allocator) tell(ctx context.Context) {
	for clock.Sleep(ctx, retell) {
		a.mu.Lock()
		fresh := time.Since(a.synced) < retellFor
		if fresh {
			clear(a.told)
		}
		a.mu.Unlock()
		if fresh {
			a.reportAll()
		}
	}
}

// reportAll reports all pods.
func (a *Allocator) reportAll() {
	a.mu.Lock()
	pods := make([]*corev1.Pod, 0, len(a.pods))
	for _, p := range a.pods {
		pods = append(pods, p)
	}
	a.mu.Unlock()
	for _, p := range pods {
		a.report(p, false)
	}
}

// lost returns why a pod's node does not run it any more. Called under mu.
func (a *Allocator) lost(p *corev1.Pod) string {
	n := a.nodes[p.Spec.NodeName]
	switch {
	case len(a.nodes) == 0 || p.Spec.NodeName == "":
		return ""
	case n == nil:
		return "its node is gone"
	case !ready(n):
		return "its node is not ready"
	}
	return ""
}

// report tells the manager what has become of a pod, once.
func (a *Allocator) report(p *corev1.Pod, gone bool) {
	id := p.Labels[VMLabel]
	a.mu.Lock()
	if id == "" || a.ending[id] {
		a.mu.Unlock()
		return
	}
	say, do := a.news(p, gone)
	news := a.told[id] != say
	a.told[id] = say
	a.mu.Unlock()
	if news {
		a.log.Info("pod", "vm", id, "pod", p.Namespace+"/"+p.Name, "node", p.Spec.NodeName, "state", say)
		do(id)
	}
}

// news returns what there is to tell of a pod, and does it. Called under mu; do is called
// without it.
func (a *Allocator) news(p *corev1.Pod, gone bool) (say string, do func(id string)) {
	name, h := describe(p), a.host
	lost := a.lost(p)
	failed := func(why string) (string, func(string)) {
		return "failed: " + why, func(id string) { h.Failed(id, name+": "+why) }
	}
	switch {
	case gone:
		return failed("it was deleted")
	case p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return failed(ended(p))
	case lost != "":
		return failed(lost)
	case p.DeletionTimestamp != nil:
		why := "it was deleted"
		if c := condition(p, corev1.DisruptionTarget); c != nil {
			why = fmt.Sprintf("%s: %s", c.Reason, c.Message)
		}
		deadline := p.DeletionTimestamp.Time
		return "reclaimed: " + why + deadline.String(), func(id string) { h.Reclaimed(id, deadline, name+": "+why) }
	case p.Spec.NodeName == "":
		why := "the scheduler has not seen it"
		if c := condition(p, corev1.PodScheduled); c != nil {
			why = c.Message
		}
		return "waits: " + why, func(id string) { h.Waiting(id, name+": "+why) }
	case p.Status.Phase == corev1.PodPending:
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return failed(w.Reason + ": " + w.Message)
			}
		}
		return "bound", func(id string) {
			h.Waiting(id, name+": its container is created")
			a.place(p, id)
		}
	}
	return "runs", func(id string) {
		h.Waiting(id, "")
		a.place(p, id)
	}
}

// place tells the manager where a pod is, and notes that its pool is farther than it seemed.
func (a *Allocator) place(p *corev1.Pod, id string) {
	a.mu.Lock()
	pool := p.Labels[PoolLabel]
	d := 0
	if from, to := a.nodes[a.config.ClientNode], a.nodes[p.Spec.NodeName]; from != nil && to != nil {
		d = a.distance(from, to)
		a.far[pool] = found{distance: d, at: time.Now()}
	}
	a.mu.Unlock()
	a.host.Placed(id, describe(p), uint32(d))
}

// ended returns why a pod has ended.
func ended(p *corev1.Pod) string {
	why := p.Status.Reason + " " + p.Status.Message
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return fmt.Sprintf("container %s ended with exit code %d: %s: %.500s", c.Name, t.ExitCode, t.Reason, t.Message)
		}
	}
	return "ended: " + why
}
