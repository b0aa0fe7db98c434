package kubernetes

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// object is an object of a list.
type object interface {
	runtime.Object
	metav1.Object
}

// follow calls all with a list of objects, and then one with each change, until ctx ends. The
// object of a change that deletes it is gone. A watch that ends is continued where it ended; only if
// the API server has no changes since then, all is listed again.
func follow[L any, P listOf[L], O object](ctx context.Context, a *Allocator, k kind, all func(*L), one func(o O, gone bool)) {
	since := "" // version; empty: all is to be listed
	for pause := firstPause; ctx.Err() == nil; clock.Sleep(ctx, pause) {
		var err error
		if since == "" {
			list := P(new(L))
			if err = a.client.list(ctx, k, list); err == nil {
				_ = meta.EachListItem(list, func(o runtime.Object) error { // whose items are objects
					o.(metav1.Object).SetManagedFields(nil) // half of what they take
					return nil
				})
				all((*L)(list))
				since = list.GetResourceVersion()
			}
		}
		var events watch.Interface
		if err == nil {
			events, err = a.client.watch(ctx, k, since)
		}
		if err != nil {
			if ctx.Err() == nil {
				a.log.Warn("not watched", "resource", k.resource, "err", oneLine(err))
			}
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				since = ""
			}
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		for e := range events.ResultChan() {
			o, ok := e.Object.(O)
			if !ok || e.Type == watch.Error {
				since = "" // the version is too old
				break
			}
			if e.Type != watch.Bookmark {
				o.SetManagedFields(nil)
				one(o, e.Type == watch.Deleted)
			}
			since = o.GetResourceVersion()
		}
		events.Stop()
	}
}

// Pauses before objects are watched or listed again.
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
