package kubernetes

import (
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

// pod returns the pod of a VM.
func (a *Allocator) pod(spec allocator.VMSpec, p *Pool, url string, secret bool) *corev1.Pod {
	t := a.config.Template.DeepCopy()
	o := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	o.Name, o.Namespace = podName(spec.ID), a.client.namespace
	if o.Labels == nil {
		o.Labels = make(map[string]string)
	}
	maps.Copy(o.Labels, map[string]string{OwnerLabel: a.config.Owner, VMLabel: spec.ID, PoolLabel: p.Name})
	if o.Spec.NodeSelector == nil {
		o.Spec.NodeSelector = make(map[string]string)
	}
	maps.Copy(o.Spec.NodeSelector, p.Nodes)
	if p.PriorityClass != "" {
		o.Spec.PriorityClassName = p.PriorityClass
	}
	o.Spec.RestartPolicy = corev1.RestartPolicyNever // a VM that has ended is another one
	o.Spec.TerminationGracePeriodSeconds = &p.NoticeSeconds
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

// size sets what a container requests, and the same limits.
func (a *Allocator) size(r *corev1.ResourceRequirements, spec allocator.VMSpec) {
	memory := *resource.NewQuantity(int64(spec.Memory), resource.BinarySI)
	memory.Add(a.config.Overhead)
	r.Requests, r.Limits = maps.Clone(r.Requests), maps.Clone(r.Limits)
	for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		if *list == nil {
			*list = make(corev1.ResourceList)
		}
		(*list)[corev1.ResourceMemory] = memory
		if delete(*list, corev1.ResourceCPU); spec.Cores > 0 {
			(*list)[corev1.ResourceCPU] = *resource.NewQuantity(int64(spec.Cores), resource.DecimalSI)
		}
	}
}

// secret returns the secret with a VM's credentials, environment variables.
func (a *Allocator) secret(id string, env []string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: podName(id), Namespace: a.client.namespace, Labels: map[string]string{OwnerLabel: a.config.Owner, VMLabel: id}},
		StringData: make(map[string]string),
	}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		s.StringData[name] = value
	}
	return s
}

// distance returns the number of switches between two nodes: 1 in a rack, 3 in a zone, 5
// beyond; 0: one is not known.
func (a *Allocator) distance(from, to *corev1.Node) int {
	same := func(label string) bool { return from.Labels[label] != "" && from.Labels[label] == to.Labels[label] }
	switch {
	case from == nil || to == nil:
		return 0
	case from.Name == to.Name, same(a.config.RackLabel):
		return 1
	case same(corev1.LabelTopologyZone):
		return 3
	}
	return 5
}

// ready reports whether a node is Ready.
func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
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

// describe names a pod and its node.
func describe(p *corev1.Pod) string {
	s := "pod " + p.Namespace + "/" + p.Name
	if p.Spec.NodeName != "" {
		s += " on node " + p.Spec.NodeName
	}
	return s
}
