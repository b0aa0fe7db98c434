package kubernetes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
)

// rights are what the manager has to be permitted.
var rights = []struct {
	verb, resource string
	namespaced     bool
}{
	{"list", "nodes", false}, {"watch", "nodes", false},
	{"get", "pods", true}, {"list", "pods", true}, {"watch", "pods", true}, {"create", "pods", true}, {"delete", "pods", true},
	{"create", "secrets", true}, {"delete", "secrets", true},
}

// Check looks for what would keep VMs from being launched: an API server that does not answer,
// rights that are missing, pools without nodes, and pods that the API server refuses, such as
// for a quota. It launches nothing. Each error is one line.
func (a *Allocator) Check(ctx context.Context) error {
	var errs []error
	for _, r := range rights {
		ok, err := a.client.may(ctx, r.verb, r.resource, r.namespaced)
		if err != nil {
			return fmt.Errorf("kubernetes allocator: API server %s: %w", a.client.host, err)
		}
		if !ok {
			where := ""
			if r.namespaced {
				where = " in namespace " + a.client.namespace
			}
			errs = append(errs, fmt.Errorf("kubernetes allocator: no right to %s %s%s", r.verb, r.resource, where))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	var nodes corev1.NodeList
	if err := a.client.list(ctx, nodeKind, &nodes); err != nil {
		return a.explain(err, "list", "nodes", 0)
	}
	for i, p := range a.config.Pools {
		matches := 0
		for _, n := range nodes.Items {
			if labels.SelectorFromSet(p.Nodes).Matches(labels.Set(n.Labels)) {
				matches++
			}
		}
		if matches == 0 {
			errs = append(errs, fmt.Errorf("kubernetes allocator: pool %s: no node has the labels %v", p.Name, labels.Set(p.Nodes)))
		}
		spec := allocator.VMSpec{
			ID: fmt.Sprintf("vm-check-%d", i), Kind: menu.Kind{Type: p.Name, Spot: p.Spot},
			Memory: uint64(p.Memory.Value()), Cores: uint32(p.Cores), Transport: a.transport,
		}
		if err := a.client.create(ctx, "pods", a.pod(spec, &a.config.Pools[i], "http://manager", false), true); err != nil {
			errs = append(errs, fmt.Errorf("kubernetes allocator: pool %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}
