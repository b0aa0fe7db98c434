package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
)

// Launch implements [allocator.Allocator]: it creates the pod, and the secret with its
// credentials before it.
func (a *Allocator) Launch(ctx context.Context, spec allocator.VMSpec) error {
	p := a.config.pool(spec.Kind.Type)
	if p == nil {
		return fmt.Errorf("kubernetes allocator: no pool %q", spec.Kind.Type)
	}
	url := a.host.URL()
	if url == "" {
		return errors.New("kubernetes allocator: the manager is not served yet: set its URL")
	}
	a.mu.Lock()
	closed, epoch := a.closed, a.epoch
	if !closed {
		a.vms[spec.ID] = vm{is: launching}
		delete(a.told, spec.ID) // of a former pod
	}
	a.mu.Unlock()
	if closed {
		return errClosed
	}
	env, resource := a.host.Credentials(spec.ID).Env(), "pods"
	pod := a.pod(spec, p, epoch, url, len(env) > 0)
	var err error
	if len(env) > 0 {
		if err = a.createSecret(ctx, a.secret(spec.ID, epoch, env)); err != nil {
			resource = "secrets"
		}
	}
	if err == nil {
		err = a.createPod(ctx, pod)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		return errors.Join(a.explain(err, "create", resource, spec.Memory), a.Terminate(undo, spec.ID, "its launch has failed"))
	}
	a.mu.Lock()
	if a.vms[spec.ID].is == launching {
		a.vms[spec.ID] = vm{is: held, pod: pod.UID}
	}
	a.mu.Unlock()
	a.due.Add(pod.Name) // what was seen of it already
	why := "for a warm pool"
	if spec.Cache != "" {
		why = "for " + spec.Cache
	}
	a.note(pod, launched, fmt.Sprintf("%s: pool %s, %v with %d cores, %v", why, spec.Kind.Type, units.Size(spec.Memory), spec.Cores, spec.Price))
	return nil
}

// insist repeats a call while the API server is not there, or has another version of the object,
// until ctx ends.
func (a *Allocator) insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		switch {
		case err == nil, decided(err):
			return err
		case !clock.Sleep(ctx, 100*time.Millisecond):
			return fmt.Errorf("API server %s: %w", a.client.host, err)
		}
	}
}

// decided reports whether an error is final: an answer of the API server that does not say that it
// is busy or not there, or that it has another version; or ErrFenced.
func decided(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, allocator.ErrFenced) || errors.As(err, &status) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err) && !apierrors.IsConflict(err)
}

// explain makes an error of the API server one line that names what is wrong.
func (a *Allocator) explain(err error, verb, resource string, memory uint64) error {
	what := verb + " " + resource
	if resource != "nodes" {
		what += " in namespace " + a.client.namespace
	}
	text := oneLine(err).Error()
	_, quota, exceeded := strings.Cut(text, "exceeded quota: ")
	switch {
	case errors.Is(err, allocator.ErrFenced):
		return fmt.Errorf("kubernetes allocator: %s %w", resource, err)
	case apierrors.IsForbidden(err) && exceeded:
		return &api.CapacityError{What: "quota of namespace " + a.client.namespace + " (" + quota + ")", Asked: memory, Why: text}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("kubernetes allocator: no right to %s: %w", what, oneLine(err))
	}
	return fmt.Errorf("kubernetes allocator: %s: %w", what, oneLine(err))
}

// oneLine returns an error whose text has no line breaks.
func oneLine(err error) error {
	if text := err.Error(); strings.ContainsAny(text, "\r\n") {
		return lineError{err, line(text)}
	}
	return err
}

// line returns a text without line breaks.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }

// lineError is an error with another text.
type lineError struct {
	error
	text string
}

func (e lineError) Error() string { return e.text }
func (e lineError) Unwrap() error { return e.error }

// Terminate implements [allocator.Allocator]: it deletes the pod, waits until it is gone, and
// deletes its secret. A pod whose node is not reached is deleted without waiting for its kubelet.
func (a *Allocator) Terminate(ctx context.Context, id, why string) error {
	a.mu.Lock()
	a.vms[id] = vm{is: ending}
	delete(a.told, id)
	a.mu.Unlock()
	return a.finish(ctx, id, why)
}

// finish deletes a VM's pod and then its secret, unless the VM is launched again meanwhile.
func (a *Allocator) finish(ctx context.Context, id, why string) error {
	name, noted := podName(id), false
	a.mu.Lock()
	epoch, seen := a.epoch, a.pods[name]
	a.mu.Unlock()
	err := a.remove(ctx, "pods", name, epoch, func(p *metav1.PartialObjectMetadata) (int64, error) {
		if err := a.mayEnd(id); err != nil {
			return 0, err
		}
		if !noted {
			noted = true
			a.note(p, terminated, why)
		}
		return a.grace(name), nil
	})
	if err == nil && !noted && seen != nil && fenced(seen, epoch) == nil {
		a.note(seen, terminated, why) // it ended by itself just before
	}
	if err == nil && len(a.host.Credentials(id).Env()) > 0 {
		err = a.removeSecret(ctx, id, epoch)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.vms[id].is == ending {
		delete(a.vms, id) // a pod of it that is seen from now on is a late one
	}
	return nil
}

// mayEnd returns an error if the leader launches a VM or has it. It is asked for each version that
// is deleted: Launch first changes the standing and then the version, so one of the two is seen.
func (a *Allocator) mayEnd(id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if is := a.vms[id].is; is == launching || is == held {
		return fmt.Errorf("of VM %s: %w", id, allocator.ErrFenced)
	}
	return nil
}

// grace returns the seconds that a pod has to end: none if its node is gone or not ready.
func (a *Allocator) grace(name string) int64 {
	a.mu.Lock()
	p := a.pods[name]
	var n *corev1.Node
	if p != nil {
		n = a.nodes[p.Spec.NodeName]
	}
	a.mu.Unlock()
	switch {
	case p == nil || p.Spec.NodeName == "":
		return 1
	case n != nil && !ready(n), n == nil && a.nodeGone(p.Spec.NodeName):
		return 0
	}
	return 1
}

// removeSecret removes the credentials of a VM.
func (a *Allocator) removeSecret(ctx context.Context, id string, epoch uint64) error {
	return a.remove(ctx, "secrets", podName(id), epoch, func(*metav1.PartialObjectMetadata) (int64, error) { return 0, a.mayEnd(id) })
}

// discard deletes a pod in the background, until it is gone, or its VM is launched or a later
// leader has it. Only report marks the VM: Launch may have it since then.
func (a *Allocator) discard(p *corev1.Pod) {
	a.background(func(ctx context.Context) {
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
			try, cancel := context.WithTimeout(ctx, time.Minute)
			err := a.finish(try, p.Labels[VMLabel], "no cache of the catalog has it")
			cancel()
			if err == nil || ctx.Err() != nil {
				return
			}
			a.log.Warn("pod not deleted", "pod", p.Name, "err", err)
			if errors.Is(err, allocator.ErrFenced) || !clock.Sleep(ctx, pause) {
				return
			}
		}
	})
}
