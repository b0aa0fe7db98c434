package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
)

// checkTimeout bounds Check.
const checkTimeout = 30 * time.Second

// Check looks for what would keep VMs from being launched: an API server that does not answer,
// rights that are missing, pools without nodes that are large enough, prices that cannot be
// read, and pods that the API server refuses, such as for a quota. It launches nothing. Each
// error is one line.
func (a *Allocator) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := a.checkRights(ctx); err != nil {
		return err
	}
	nodes, err := a.allNodes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	found := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("kubernetes allocator: "+format, args...))
	}
	if name := a.config.ClientNode; name != "" && !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == name }) {
		found("clientNode: no node %s", name)
	}
	for _, n := range nodes {
		_, _, err := priceOf(n)
		if err != nil && slices.ContainsFunc(a.config.Pools, func(p Pool) bool { return p.has(n) }) {
			found("%w", err)
		}
	}
	for i := range a.config.Pools {
		p := &a.config.Pools[i]
		pod := a.pod(allocator.VMSpec{
			ID: fmt.Sprintf("vm-check-%d", i), Kind: menu.Kind{Type: p.Name, Spot: p.Spot},
			Memory: uint64(p.Memory.Value()), Cores: uint32(p.Cores), Transport: a.transport,
		}, p, 0, "http://manager", false)
		members, err := p.members(nodes)
		if err == nil {
			err = fits(pod, members)
		}
		if err != nil {
			found("pool %s: %w", p.Name, err)
		}
		if err := a.client.create(ctx, "pods", pod, true); err != nil {
			found("pool %s: %w", p.Name, oneLine(err))
		}
	}
	return errors.Join(errs...)
}

// checkRights reports the rights that are missing.
func (a *Allocator) checkRights(ctx context.Context) error {
	var errs []error
	for _, r := range rights {
		ok, err := a.client.may(ctx, r)
		if err != nil {
			return fmt.Errorf("kubernetes allocator: API server %s: %w", a.client.host, oneLine(err))
		}
		if !ok {
			where := ""
			if r.Namespaced {
				where = " in namespace " + a.client.namespace
			}
			errs = append(errs, fmt.Errorf("kubernetes allocator: no right to %s %s%s", r.Verb, r.Resource, where))
		}
	}
	return errors.Join(errs...)
}

// fits reports a pod that requests more than each node has.
func fits(p *corev1.Pod, nodes []*corev1.Node) error {
	names := []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU}
	asked, most := make(corev1.ResourceList), make(corev1.ResourceList)
	for _, name := range names {
		var sum resource.Quantity
		for _, c := range p.Spec.Containers {
			sum.Add(c.Resources.Requests[name])
		}
		asked[name] = sum
	}
	for _, n := range nodes {
		enough := true
		for _, name := range names {
			has, want, top := n.Status.Allocatable[name], asked[name], most[name]
			enough = enough && want.Cmp(has) <= 0
			if has.Cmp(top) > 0 {
				most[name] = has
			}
		}
		if enough {
			return nil
		}
	}
	for _, name := range names {
		if want, top := asked[name], most[name]; want.Cmp(top) > 0 {
			return fmt.Errorf("a pod requests %s %v, and no node has more than %v", name, &want, &top)
		}
	}
	return fmt.Errorf("a pod requests memory %v and cpu %v, and no node has both", asked.Memory(), asked.Cpu())
}
