package kubernetes

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// takeovers is the number of pods that are taken over at a time.
const takeovers = 32

// Restore implements [allocator.Restorer]. Pods that the leader does not have are deleted when
// they are reported, a share of all pods a minute: if the catalog is an older copy, caches may use
// them. Pods and secrets of another catalog stay.
//
// The epoch is written only on the pods of idle VMs: a former leader may be deleting them. So a
// takeover of many pods that caches use does not depend on their number, but for the list.
func (a *Allocator) Restore(ctx context.Context, epoch uint64, lent, idle []string) (running []string, err error) {
	a.begin(epoch, slices.Concat(lent, idle))
	var pods corev1.PodList
	if err := a.insist(ctx, func() error { return a.client.list(ctx, a.podKind(), &pods) }); err != nil {
		return nil, a.explain(err, "list", "pods", 0)
	}
	for i := range pods.Items {
		if err := fenced(&pods.Items[i], epoch); err != nil {
			return nil, a.explain(err, "list", "pods", 0)
		}
	}
	listed := a.keep(pods.Items)
	work, workCtx := errgroup.WithContext(ctx)
	work.SetLimit(takeovers)
	for _, id := range slices.Concat(lent, idle) {
		if a.has(id) {
			running = append(running, id)
		}
	}
	for _, id := range idle {
		if a.has(id) {
			work.Go(func() error { return a.takeOver(workCtx, listed[id], epoch) })
		}
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	if err := a.removeLostSecrets(ctx, listed, epoch); err != nil {
		return nil, err
	}
	a.reportAll()
	return running, nil
}

// begin begins the term of a leader that has VMs. Until it is known which of them have pods, all
// are held, so that the end of none is missed.
func (a *Allocator) begin(epoch uint64, wanted []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch = epoch
	clear(a.told) // what was told to an earlier leader
	clear(a.vms)
	for _, id := range wanted {
		a.vms[id] = vm{is: held}
	}
}

// keep returns pods by VM, and forgets the VMs without a pod that runs: a pod of theirs that is
// seen later was created by a former leader.
func (a *Allocator) keep(pods []corev1.Pod) map[string]*corev1.Pod {
	listed := make(map[string]*corev1.Pod, len(pods))
	for i := range pods {
		listed[pods[i].Labels[VMLabel]] = &pods[i]
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, v := range a.vms {
		switch p := listed[id]; {
		case v.is != held:
		case p == nil || over(p):
			delete(a.vms, id)
		default:
			a.vms[id] = vm{is: held, pod: p.UID}
		}
	}
	return listed
}

// has reports whether the leader has a VM.
func (a *Allocator) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.vms[id].is == held
}

// takeOver writes an epoch on a pod, and before that on its secret if it may need that still. It
// is no error if they are gone, which is reported.
func (a *Allocator) takeOver(ctx context.Context, p *corev1.Pod, epoch uint64) error {
	if p.Status.Phase == corev1.PodPending && len(a.host.Credentials(p.Labels[VMLabel]).Env()) > 0 {
		if err := a.claim(ctx, "secrets", p.Name, nil, epoch); err != nil && !apierrors.IsNotFound(err) {
			return a.explain(err, "patch", "secrets", 0)
		}
	}
	seen := &metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta}
	if err := a.claim(ctx, "pods", p.Name, seen, epoch); err != nil && !apierrors.IsNotFound(err) {
		return a.explain(err, "patch", "pods", 0)
	}
	return nil
}

// removeLostSecrets removes the secrets without a pod.
func (a *Allocator) removeLostSecrets(ctx context.Context, listed map[string]*corev1.Pod, epoch uint64) error {
	k := kind{resource: "secrets", namespaced: true, labels: a.podKind().labels + "," + VMLabel}
	var secrets *metav1.PartialObjectMetadataList
	err := a.insist(ctx, func() (err error) {
		secrets, err = a.client.listMetadata(ctx, k)
		return err
	})
	if err != nil {
		return a.explain(err, "list", "secrets", 0)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(takeovers)
	for i := range secrets.Items {
		if id := secrets.Items[i].Labels[VMLabel]; listed[id] == nil && a.ours(&secrets.Items[i]) {
			work.Go(func() error { return a.removeSecret(ctx, id, epoch) })
		}
	}
	return work.Wait()
}
