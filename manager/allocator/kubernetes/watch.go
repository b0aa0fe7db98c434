package kubernetes

import (
	"context"
	"maps"
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
	for pause := firstPause; ctx.Err() == nil; clock.Sleep(ctx, pause) {
		list := P(new(L))
		err := a.client.list(ctx, k, list)
		var events watch.Interface
		if err == nil {
			all((*L)(list))
			events, err = a.client.watch(ctx, k, list.GetResourceVersion())
		}
		if err != nil {
			if ctx.Err() == nil {
				a.log.Warn("not watched", "resource", k.resource, "err", oneLine(err))
			}
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
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

// Pauses before objects are listed again.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 10 * time.Second
)

func (a *Allocator) setPods(list *corev1.PodList) {
	a.mu.Lock()
	old := a.pods
	a.pods = make(map[string]*corev1.Pod)
	for i := range list.Items {
		p := &list.Items[i]
		a.pods[p.Name] = p
		if o := old[p.Name]; o != nil && (o.UID != p.UID || !taken(o).end.Equal(taken(p).end)) {
			delete(a.began, p.Name) // the beginning of the new notice was not seen
		}
		delete(old, p.Name)
	}
	maps.Copy(a.gone, old)
	for name := range old {
		delete(a.began, name)
	}
	a.mu.Unlock()
	for name := range old {
		a.due.Add(name)
	}
	a.reportAll()
}

func (a *Allocator) setPod(p *corev1.Pod, gone bool) {
	a.mu.Lock()
	if old := a.pods[p.Name]; old != nil && p.UID == old.UID && !taken(p).end.Equal(taken(old).end) {
		a.began[p.Name] = time.Now()
	}
	if a.pods[p.Name] = p; gone {
		delete(a.pods, p.Name)
		delete(a.began, p.Name)
		a.gone[p.Name] = p
	}
	a.mu.Unlock()
	a.due.Add(p.Name)
}

func (a *Allocator) setNodes(list *corev1.NodeList) {
	a.mu.Lock()
	a.nodes = make(map[string]*corev1.Node)
	for i := range list.Items {
		a.nodes[list.Items[i].Name] = &list.Items[i]
	}
	a.mu.Unlock()
	a.reportAll()
	a.host.OffersChanged()
}

func (a *Allocator) setNode(n *corev1.Node, gone bool) {
	a.mu.Lock()
	old := a.nodes[n.Name]
	if a.nodes[n.Name] = n; gone {
		delete(a.nodes, n.Name)
	}
	a.mu.Unlock()
	switch {
	case gone || old == nil:
		a.reportAll()
	case ready(old) == ready(n) && old.Spec.Unschedulable == n.Spec.Unschedulable && maps.Equal(old.Labels, n.Labels) &&
		old.Annotations[PriceAnnotation] == n.Annotations[PriceAnnotation]:
		return // nothing that matters here
	case !maps.Equal(old.Labels, n.Labels):
		a.reportAll() // distances
	}
	a.host.OffersChanged()
}
