package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/allocator"
)

// A leader whose term has ended may not know it, and a call of it may arrive at any time later.
// So each pod and each secret has the epoch of its leader in an annotation:
//
//   - a leader deletes only what has no higher epoch than its own, and only in the version in
//     which it read that;
//   - a leader deletes the pod of a VM of its catalog only when the catalog says that no cache has
//     the VM, or that it has failed;
//   - a new leader writes its epoch on the pods of those VMs before it uses them, so that a call of
//     a former leader finds a higher epoch or another version. The others, which caches have, need
//     none: no former leader deletes them;
//   - a pod of no higher epoch whose VM the leader does not have is deleted whenever it is seen:
//     a former leader created it late. If the leader launches that VM meanwhile, the deletion
//     stops. Ids of VMs are not used again.

// epochOf returns the epoch of an object; 0: it has none that can be read, as before there were
// epochs.
func epochOf(o metav1.Object) uint64 {
	epoch, err := strconv.ParseUint(o.GetAnnotations()[EpochAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

func epochText(epoch uint64) string { return strconv.FormatUint(epoch, 10) }

// fenced reports an object that a later leader than that of an epoch has.
func fenced(o metav1.Object, epoch uint64) error {
	if have := epochOf(o); have > epoch {
		return fmt.Errorf("%s/%s: %w: its epoch is %d, and this leader's is %d", o.GetNamespace(), o.GetName(), allocator.ErrFenced, have, epoch)
	}
	return nil
}

// createSecret creates a secret with its epoch. One that exists already is taken over.
func (a *Allocator) createSecret(ctx context.Context, s *corev1.Secret) error {
	for {
		err := a.insist(ctx, func() error { return a.client.create(ctx, "secrets", s, false) })
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := a.claim(ctx, "secrets", s.Name, nil, epochOf(s)); !apierrors.IsNotFound(err) {
			return err
		}
	}
}

// createPod creates a pod with its epoch. One that exists already is taken over, or deleted first
// if it has ended or is being deleted. The UID is that of the pod that there is then.
func (a *Allocator) createPod(ctx context.Context, pod *corev1.Pod) error {
	epoch := epochOf(pod)
	return a.insist(ctx, func() error {
		err := a.client.create(ctx, "pods", pod, false)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		old, err := a.client.pod(ctx, pod.Name)
		if err == nil {
			err = fenced(old, epoch)
		}
		switch {
		case err != nil:
		case over(old) || old.DeletionTimestamp != nil:
			if err = a.remove(ctx, "pods", pod.Name, epoch, func(*metav1.PartialObjectMetadata) (int64, error) { return a.grace(pod.Name), nil }); err == nil {
				return errGone
			}
		case epochOf(old) != epoch:
			err = a.client.annotate(ctx, "pods", &metav1.PartialObjectMetadata{ObjectMeta: old.ObjectMeta}, EpochAnnotation, epochText(epoch))
		}
		if apierrors.IsNotFound(err) {
			return errGone
		}
		pod.UID = old.UID
		return err
	})
}

// errGone makes createPod try again: the pod that was in its way is gone.
var errGone = errors.New("the former pod is gone")

// claim writes an epoch on an object, of which seen was read before; nil: nothing.
func (a *Allocator) claim(ctx context.Context, resource, name string, seen *metav1.PartialObjectMetadata, epoch uint64) error {
	return a.insist(ctx, func() (err error) {
		o := seen
		seen = nil // another version is read if this one is not the last
		if o == nil {
			if o, err = a.client.metadata(ctx, resource, name); err != nil {
				return err
			}
		}
		if err := fenced(o, epoch); err != nil || epochOf(o) == epoch {
			return err
		}
		return a.client.annotate(ctx, resource, o, EpochAnnotation, epochText(epoch))
	})
}

// remove deletes an object that no leader after that of an epoch has, and waits until it is gone.
// grace is called with each version that is read, and returns the grace period in seconds, or why
// that version is not deleted.
func (a *Allocator) remove(ctx context.Context, resource, name string, epoch uint64, grace func(o *metav1.PartialObjectMetadata) (int64, error)) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		verb := "get"
		o, err := a.client.metadata(ctx, resource, name)
		if err == nil {
			err = fenced(o, epoch)
		}
		var g int64
		if err == nil {
			g, err = grace(o)
		}
		if err == nil && (o.DeletionTimestamp == nil || *cmp.Or(o.DeletionGracePeriodSeconds, new(int64)) > g) {
			verb = "delete"
			err = a.client.remove(ctx, resource, o, g)
		}
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil && decided(err):
			return a.explain(err, verb, resource, 0)
		case !clock.Sleep(ctx, pause):
			return fmt.Errorf("kubernetes allocator: %s %s/%s is not gone: %w", resource, a.client.namespace, name, cmp.Or(err, ctx.Err()))
		}
	}
}
