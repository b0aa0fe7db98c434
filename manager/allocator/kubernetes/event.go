package kubernetes

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reason is the reason of an event about a pod. A pod has one event of each.
type reason string

// Reasons.
const (
	launched   reason = "Launched"   // for a cache
	reclaimed  reason = "Reclaimed"  // with notice
	terminated reason = "Terminated" // by the manager
	unknownPod reason = "Unknown"    // to the manager's catalog
)

// callTimeout bounds a call of the API server that no caller bounds.
const callTimeout = 5 * time.Second

// note creates an event about a pod, in the background. Its name is the same for all managers,
// so that each reason is stated once.
func (a *Allocator) note(p metav1.Object, why reason, message string) {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: p.GetName() + "." + strings.ToLower(string(why)), Namespace: p.GetNamespace(), Labels: map[string]string{OwnerLabel: a.config.Owner}},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUID(),
		},
		Reason: string(why), Message: strings.ToValidUTF8(message[:min(len(message), maxMessage)], ""), Type: corev1.EventTypeNormal, Source: corev1.EventSource{Component: component},
		ReportingController: component, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	a.background(func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := a.client.create(call, "events", e, false); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			a.log.Warn("no event about a pod", "pod", p.GetNamespace()+"/"+p.GetName(), "reason", why, "message", message, "err", err)
		}
	})
}

// component is the name under which events are created.
const component = "redykv-manager"

// maxMessage is the API server's limit for the message of an event, in bytes.
const maxMessage = 1024
