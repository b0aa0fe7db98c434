package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
	a.mu.Lock()
	closed := a.closed
	a.mu.Unlock()
	url := a.host.URL()
	switch {
	case closed:
		return errClosed
	case url == "":
		return errors.New("kubernetes allocator: the manager is not served yet: set its URL")
	}
	env := a.host.Credentials(spec.ID).Env()
	if len(env) > 0 {
		if err := a.insist(ctx, func() error { return a.client.create(ctx, "secrets", a.secret(spec.ID, env), false) }); err != nil {
			return a.explain(err, "create", "secrets", spec.Memory)
		}
	}
	pod := a.pod(spec, p, url, len(env) > 0)
	if err := a.insist(ctx, func() error { return a.client.create(ctx, "pods", pod, false) }); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		return errors.Join(a.explain(err, "create", "pods", spec.Memory), a.removeSecret(undo, spec.ID))
	}
	why := "for a warm pool"
	if spec.Cache != "" {
		why = "for " + spec.Cache
	}
	a.note(pod, launched, fmt.Sprintf("%s: pool %s, %v with %d cores, %v", why, spec.Kind.Type, units.Size(spec.Memory), spec.Cores, spec.Price))
	return nil
}

// insist repeats a call while the API server is not there, until ctx ends. That the object
// exists already is no error.
func (a *Allocator) insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
			return nil
		case decided(err):
			return err
		case !clock.Sleep(ctx, 100*time.Millisecond):
			return fmt.Errorf("API server %s: %w", a.client.host, err)
		}
	}
}

// decided reports whether an error is the API server's answer, and not one that says that it is
// busy or not there.
func decided(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err) &&
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

// Terminate implements [allocator.Allocator]: it deletes the pod, and waits until it is gone. A
// pod whose node is not reached is deleted without waiting for its kubelet.
func (a *Allocator) Terminate(ctx context.Context, id, why string) error {
	name := podName(id)
	grace := int64(1)
	a.mu.Lock()
	a.ending[id] = ending{since: time.Now()}
	p := a.pods[name]
	if p != nil && a.unreached(p) {
		grace = 0
	}
	a.mu.Unlock()
	if p != nil {
		a.note(p, terminated, why)
	}
	if err := a.client.remove(ctx, "pods", name, &grace); err != nil && !apierrors.IsNotFound(err) {
		return a.explain(err, "delete", "pods", 0)
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := a.client.core.Get().Namespace(a.client.namespace).Resource("pods").Name(name).Do(ctx).Error()
		switch {
		case apierrors.IsNotFound(err):
			a.ended(id)
			return a.removeSecret(ctx, id)
		case !clock.Sleep(ctx, pause):
			return fmt.Errorf("kubernetes allocator: pod %s/%s is not gone: %w", a.client.namespace, name, cmp.Or(err, ctx.Err()))
		}
	}
}

// ended notes that a VM has no pod any more, and forgets those that ended long ago.
func (a *Allocator) ended(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.told, id)
	a.ending[id] = ending{since: time.Now(), gone: true}
	for id, e := range a.ending {
		if e.gone && time.Since(e.since) > endingFor {
			delete(a.ending, id)
		}
	}
}

// removeSecret removes the credentials of a VM, if it has any.
func (a *Allocator) removeSecret(ctx context.Context, id string) error {
	if len(a.host.Credentials(id).Env()) == 0 {
		return nil
	}
	if err := a.client.remove(ctx, "secrets", podName(id), nil); err != nil && !apierrors.IsNotFound(err) {
		return a.explain(err, "delete", "secrets", 0)
	}
	return nil
}

// Restore implements [allocator.Restorer].
func (a *Allocator) Restore(ctx context.Context, wanted []string) ([]string, error) {
	var pods corev1.PodList
	if err := a.insist(ctx, func() error { return a.client.list(ctx, a.podKind(), &pods) }); err != nil {
		return nil, a.explain(err, "list", "pods", 0)
	}
	var running []string
	for i := range pods.Items {
		p := &pods.Items[i]
		if id := p.Labels[VMLabel]; slices.Contains(wanted, id) && !over(p) {
			running = append(running, id)
		} else {
			a.discard(p, "no cache of the catalog has it")
		}
	}
	rest := kind{resource: "secrets", namespaced: true, labels: a.podKind().labels + "," + VMLabel}
	if len(running) > 0 {
		rest.labels += "," + VMLabel + " notin (" + strings.Join(running, ",") + ")"
	}
	if err := a.insist(ctx, func() error { return a.client.removeAll(ctx, rest) }); err != nil {
		return nil, a.explain(err, "deletecollection", "secrets", 0)
	}
	a.mu.Lock()
	clear(a.told) // what was told to an earlier leader
	a.mu.Unlock()
	a.reportAll()
	return running, nil
}

// discard deletes a pod in the background, until it is gone.
func (a *Allocator) discard(p *corev1.Pod, why string) {
	a.background(func(ctx context.Context) {
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
			try, cancel := context.WithTimeout(ctx, time.Minute)
			err := a.Terminate(try, p.Labels[VMLabel], why)
			cancel()
			if err == nil || ctx.Err() != nil {
				return
			}
			a.log.Warn("pod not deleted", "pod", p.Name, "err", err)
			if !clock.Sleep(ctx, pause) {
				return
			}
		}
	})
}
