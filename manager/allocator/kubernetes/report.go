package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/allocator"
)

// reporters is the number of pods that are reported at a time. A report may wait for the API
// server, and for the manager's catalog.
const reporters = 16

// reportAll queues the reports of all pods.
func (a *Allocator) reportAll() {
	for _, p := range a.known() {
		a.due.Add(p.Name)
	}
}

// reportDue reports the pods that are due, until the queue is shut down.
func (a *Allocator) reportDue() {
	for {
		name, ended := a.due.Get()
		if ended {
			return
		}
		a.report(name)
		a.due.Done(name)
	}
}

func (a *Allocator) known() []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(a.pods))
	for _, p := range a.pods {
		pods = append(pods, p)
	}
	return pods
}

// ours reports whether a manager with this one's catalog made a pod or secret.
func (a *Allocator) ours(o metav1.Object) bool {
	return o.GetAnnotations()[CatalogAnnotation] == a.catalog()
}

// catalog returns the identity of the manager's catalog; empty: there is no manager, see Check.
func (a *Allocator) catalog() string {
	if a.host == nil {
		return ""
	}
	return a.host.Catalog()
}

// discarding bounds how many pods are deleted that the leader does not have.
type discarding struct {
	since time.Time // the present minute
	pods  int       // that were deleted in it
}

// wait returns how long the deletion of a pod has to wait. It is 0 for a tenth of all pods a minute, and
// for one at least.
func (d *discarding) wait(now time.Time, all int) time.Duration {
	if now.Sub(d.since) >= time.Minute {
		*d = discarding{since: now}
	}
	if d.pods >= max(1, all/10) {
		return d.since.Add(time.Minute).Sub(now)
	}
	d.pods++
	return 0
}

// foreign is what is told of a pod of another catalog.
const foreign = "the manager's catalog does not know this pod, which a manager with another catalog has made: delete it by hand if nobody uses it"

// report tells the manager what has become of a pod of its leader's, once. A pod that the leader
// does not have is deleted, unless it is of another catalog.
func (a *Allocator) report(name string) {
	a.mu.Lock()
	p, gone := a.latest(name)
	if p == nil || p.Labels[VMLabel] == "" {
		a.mu.Unlock()
		return
	}
	id := p.Labels[VMLabel]
	v := a.vms[id]
	stray := v.is == unknown && !gone && a.epoch > 0 && epochOf(p) <= a.epoch
	stays, wait := stray && !a.ours(p), time.Duration(0)
	news := stays && a.told[id] != foreign
	switch {
	case stays:
		a.told[id], stray = foreign, false
	case stray:
		if wait = a.discards.wait(time.Now(), len(a.pods)); wait == 0 {
			a.vms[id] = vm{is: ending}
		}
	case v.is == unknown && gone:
		delete(a.told, id)
	}
	if v.is == launching && gone {
		a.gone[name] = p // reported when its UID can be compared
	}
	a.mu.Unlock()
	switch {
	case news:
		a.log.Error(foreign, "vm", id, "pod", nameOf(p))
		a.note(p, unknownPod, foreign)
	case wait > 0:
		a.background(func(ctx context.Context) {
			if clock.Sleep(ctx, wait) {
				a.due.Add(name)
			}
		})
	case stray:
		a.discard(p)
	}
	if !v.has(p) {
		return
	}
	say, do := a.news(p, gone)
	a.mu.Lock()
	told := a.told[id]
	news = a.vms[id] == v && told != say
	if news && !gone {
		a.told[id] = say
	} else if gone {
		delete(a.told, id)
	}
	a.mu.Unlock()
	if news {
		a.log.Info("pod", "vm", id, "pod", nameOf(p), "node", p.Spec.NodeName, "state", say)
		// Of versions that were seen in quick succession only the last is reported: an end says
		// that the pod was taken back.
		if (gone || over(p)) && taken(p) != (notice{}) && !strings.HasPrefix(told, "reclaimed: ") && !strings.HasPrefix(told, "failed: ") {
			_, before := a.reclaimed(p)
			before(id)
		}
		do(id)
	}
}

// latest returns what was seen last of a pod; nil: it is gone, and was reported. Called under mu.
func (a *Allocator) latest(name string) (_ *corev1.Pod, gone bool) {
	former := a.gone[name]
	delete(a.gone, name)
	if p := a.pods[name]; p != nil {
		return p, false
	}
	return former, true
}

// news returns what there is to tell of a pod, and the call that does.
func (a *Allocator) news(p *corev1.Pod, gone bool) (say string, do func(id string)) {
	name := describe(p)
	failed := func(why string) (string, func(string)) {
		why = line(why)
		return "failed: " + why, func(id string) { a.host.Failed(id, name+": "+why) }
	}
	place := a.place(p)
	switch {
	case gone:
		return failed("it was deleted")
	case over(p):
		return failed(end(p))
	case p.Spec.NodeName != "" && a.nodeGone(p.Spec.NodeName):
		return failed("its node is gone")
	case p.DeletionTimestamp != nil, disrupted(p) != nil:
		return a.reclaimed(p)
	case p.Spec.NodeName == "":
		why := "the scheduler has not seen it"
		if c := condition(p, corev1.PodScheduled); c != nil && c.Message != "" {
			why = line(c.Message)
		}
		return "waits: " + why, func(id string) { a.host.Waiting(id, name+": "+why) }
	}
	ended, hopeless, why := a.container(p)
	if ended || hopeless {
		return failed(why)
	}
	if why != "" {
		why = name + ": " + line(why)
	}
	return fmt.Sprintf("at distance %d: %s", place.Distance, why), func(id string) {
		a.placed(p, id, place)
		a.host.Waiting(id, why)
	}
}

// reclaimed returns the news of a pod that is evicted, preempted or deleted, or will be.
func (a *Allocator) reclaimed(p *corev1.Pod) (say string, do func(id string)) {
	why, n := "it was deleted", taken(p)
	if c := disrupted(p); c != nil {
		why = line(c.Reason + ": " + c.Message)
	}
	a.mu.Lock()
	began := a.began[p.Name]
	a.mu.Unlock()
	return "reclaimed: " + why + " until " + n.end.String(), func(id string) {
		a.note(p, reclaimed, "its memory is taken back: "+why)
		a.host.Reclaimed(id, n.deadline(began, time.Now()), describe(p)+": "+why)
	}
}

// notice is how long a pod that is taken back still runs.
type notice struct {
	end   time.Time // by the cluster's clock
	grace time.Duration
}

// taken returns the notice of a pod; zero: it is not taken back.
func taken(p *corev1.Pod) notice {
	seconds := func(n ...*int64) time.Duration { return time.Duration(*cmp.Or(append(n, new(int64))...)) * time.Second }
	whole := p.Spec.TerminationGracePeriodSeconds
	if p.DeletionTimestamp != nil {
		return notice{p.DeletionTimestamp.Time, seconds(p.DeletionGracePeriodSeconds, whole)}
	}
	if c := disrupted(p); c != nil {
		return notice{c.LastTransitionTime.Add(seconds(whole)), seconds(whole)}
	}
	return notice{}
}

// deadline returns when a pod ends by this machine's clock, which may differ from the cluster's.
// A notice that was seen to begin lasts for the grace period from then, whatever the clocks say.
// When an earlier one began only the cluster's clock tells, but no more than the grace period is
// left of it. began is zero if the beginning was not seen.
func (n notice) deadline(began, now time.Time) time.Time {
	if !began.IsZero() {
		// The cluster's times are whole seconds, and its news take time. If no more than that makes
		// its end the earlier one, it holds: it is not after the end that the pod's server counts for
		// itself.
		whole := began.Add(n.grace)
		if early := whole.Sub(n.end); 0 < early && early < 2*time.Second {
			return n.end
		}
		return whole
	}
	if whole := now.Add(n.grace); whole.Before(n.end) {
		return whole
	}
	return n.end
}

// disrupted returns the condition by which a pod is about to be evicted or preempted, or is; nil:
// there is none.
func disrupted(p *corev1.Pod) *corev1.PodCondition {
	if c := condition(p, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return c
	}
	return nil
}

// place returns where a pod is.
func (a *Allocator) place(p *corev1.Pod) allocator.Place {
	at := allocator.Place{Machine: p.Spec.NodeName, Name: nameOf(p)}
	a.mu.Lock()
	defer a.mu.Unlock()
	at.Distance = uint32(a.distance(a.nodes[p.Annotations[ClientAnnotation]], a.nodes[p.Spec.NodeName]))
	return at
}

// placed tells the manager where a pod is bound, and notes the distance of its route.
func (a *Allocator) placed(p *corev1.Pod, id string, at allocator.Place) {
	if at.Distance != 0 {
		a.mu.Lock()
		a.far[route{p.Labels[PoolLabel], p.Annotations[ClientAnnotation]}] = found{distance: int(at.Distance), at: time.Now()}
		a.mu.Unlock()
	}
	a.host.Placed(id, at)
}

// nodeGone reports whether there is no node of a name. The watch of nodes may be late, so the
// API server is asked.
func (a *Allocator) nodeGone(name string) bool {
	a.mu.Lock()
	known := a.nodes[name] != nil
	a.mu.Unlock()
	if known {
		return false
	}
	ctx, cancel := context.WithTimeout(a.ctx, callTimeout)
	defer cancel()
	return apierrors.IsNotFound(a.client.core.Get().Resource("nodes").Name(name).Do(ctx).Error())
}

// remindEvery is the interval at which the manager is told of nodes that are not ready.
const remindEvery = time.Second

// remind tells the manager of pods on nodes that are not ready. Their processes may run, as when
// only the kubelet has stopped, so that this is a loss only if the manager hears nothing of them.
func (a *Allocator) remind() {
	for clock.Sleep(a.ctx, remindEvery) {
		for _, p := range a.known() {
			a.mu.Lock()
			n, v := a.nodes[p.Spec.NodeName], a.vms[p.Labels[VMLabel]]
			a.mu.Unlock()
			if n != nil && !ready(n) && v.has(p) {
				a.host.Unreachable(p.Labels[VMLabel], describe(p)+": the node is not ready")
			}
		}
	}
}

// hopeless are reasons of a container that waits, and will go on doing so.
var hopeless = map[string]bool{
	"ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true, "CreateContainerConfigError": true,
	"CreateContainerError": true, "RunContainerError": true,
}

// container returns whether the cache server's container has ended or will not start, and why
// it does not run.
func (a *Allocator) container(p *corev1.Pod) (ended, never bool, why string) {
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.Name != a.config.Container:
		case c.State.Terminated != nil:
			return true, false, endOf(c)
		case c.State.Waiting != nil:
			w := c.State.Waiting
			return false, hopeless[w.Reason], fmt.Sprintf("container %s: %s %.500s", c.Name, w.Reason, w.Message)
		}
	}
	if p.Status.Phase == corev1.PodPending {
		return false, false, "its container is created"
	}
	return false, false, ""
}

// over reports whether a pod has ended.
func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// end returns why a pod has ended.
func end(p *corev1.Pod) string {
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if t := c.State.Terminated; t != nil && (t.ExitCode != 0 || p.Status.Phase == corev1.PodSucceeded) {
			return endOf(c)
		}
	}
	return fmt.Sprintf("it has ended: %s %s", p.Status.Reason, p.Status.Message)
}

func endOf(c corev1.ContainerStatus) string {
	t := c.State.Terminated
	return fmt.Sprintf("container %s ended with exit code %d: %s: %.500s", c.Name, t.ExitCode, t.Reason, t.Message)
}
