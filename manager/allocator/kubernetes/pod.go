package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/redykv/redykv/manager/allocator"
)

// podName returns the name of a VM's pod and secret.
func podName(id string) string { return strings.ToLower(id) }

// pod returns the pod of a VM, for the leader of an epoch.
func (a *Allocator) pod(spec allocator.VMSpec, p *Pool, epoch uint64, url string, secret bool) *corev1.Pod {
	t := a.config.Template.DeepCopy()
	o := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	o.Name, o.Namespace = podName(spec.ID), a.client.namespace
	if o.Labels == nil {
		o.Labels = make(map[string]string)
	}
	maps.Copy(o.Labels, map[string]string{OwnerLabel: a.config.Owner, VMLabel: spec.ID, PoolLabel: p.Name})
	client := cmp.Or(spec.Client, a.config.ClientNode)
	for name, value := range map[string]string{CacheAnnotation: spec.Cache, ClientAnnotation: client, EpochAnnotation: epochText(epoch), CatalogAnnotation: a.catalog()} {
		if o.Annotations == nil {
			o.Annotations = make(map[string]string)
		}
		if value != "" {
			o.Annotations[name] = value
		}
	}
	if o.Spec.NodeSelector == nil {
		o.Spec.NodeSelector = make(map[string]string)
	}
	maps.Copy(o.Spec.NodeSelector, p.Nodes)
	a.preferNear(&o.Spec, client)
	if p.PriorityClass != "" {
		o.Spec.PriorityClassName = p.PriorityClass
	}
	o.Spec.RestartPolicy = corev1.RestartPolicyNever            // a VM that has ended is another one
	o.Spec.TerminationGracePeriodSeconds = new(p.NoticeSeconds) // not the pool's own: the API server's answer is decoded into it
	if o.Spec.AutomountServiceAccountToken == nil {
		o.Spec.AutomountServiceAccountToken = new(bool)
	}
	for i := range o.Spec.Containers {
		if c := &o.Spec.Containers[i]; c.Name == a.config.Container {
			c.Args = append(c.Args, "--manager", url, "--vm-id", spec.ID, "--memory", strconv.FormatUint(spec.Memory, 10),
				"--cores", strconv.FormatUint(uint64(spec.Cores), 10), "--transport", spec.Transport,
				"--notice", fmt.Sprintf("%ds", p.NoticeSeconds))
			if secret {
				c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: o.Name}}})
			}
			a.size(&c.Resources, spec)
		}
	}
	return o
}

// preferNear makes the scheduler prefer nodes in the client's rack, and then in its zone.
func (a *Allocator) preferNear(o *corev1.PodSpec, client string) {
	a.mu.Lock()
	from := a.nodes[client]
	a.mu.Unlock()
	for _, near := range []struct {
		label  string
		weight int32
	}{{a.config.RackLabel, 100}, {corev1.LabelTopologyZone, 50}} {
		if from == nil || from.Labels[near.label] == "" {
			continue
		}
		if o.Affinity == nil {
			o.Affinity = new(corev1.Affinity)
		}
		if o.Affinity.NodeAffinity == nil {
			o.Affinity.NodeAffinity = new(corev1.NodeAffinity)
		}
		preferred := &o.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		*preferred = append(*preferred, corev1.PreferredSchedulingTerm{Weight: near.weight, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: near.label, Operator: corev1.NodeSelectorOpIn, Values: []string{from.Labels[near.label]}}},
		}})
	}
}

// size sets what a container requests, and the same limits. A container without cores requests
// none explicitly, so that no LimitRange gives it a part of a processor.
func (a *Allocator) size(r *corev1.ResourceRequirements, spec allocator.VMSpec) {
	memory := *resource.NewQuantity(int64(spec.Memory), resource.BinarySI)
	memory.Add(a.config.Overhead)
	r.Requests, r.Limits = maps.Clone(r.Requests), maps.Clone(r.Limits)
	for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		if *list == nil {
			*list = make(corev1.ResourceList)
		}
		(*list)[corev1.ResourceMemory] = memory
		(*list)[corev1.ResourceCPU] = *resource.NewQuantity(int64(spec.Cores), resource.DecimalSI)
	}
	if spec.Cores == 0 {
		delete(r.Limits, corev1.ResourceCPU) // 0 would be no limit as well; it uses what is idle
	}
}

// secret returns the secret with a VM's credentials, environment variables, for the leader of an
// epoch.
func (a *Allocator) secret(id string, epoch uint64, env []string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(id), Namespace: a.client.namespace,
			Labels:      map[string]string{OwnerLabel: a.config.Owner, VMLabel: id},
			Annotations: map[string]string{EpochAnnotation: epochText(epoch), CatalogAnnotation: a.catalog()},
		},
		StringData: make(map[string]string),
	}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		s.StringData[name] = value
	}
	return s
}

// condition returns a condition of a pod; nil: it has none.
func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// nameOf returns a pod's namespace and name.
func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// describe names a pod and its node.
func describe(p *corev1.Pod) string {
	s := "pod " + nameOf(p)
	if p.Spec.NodeName != "" {
		s += " on node " + p.Spec.NodeName
	}
	return s
}
