package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// farFor is the time for which a pool is offered to clients on a node at the distance of the
// last pod that was launched for one of them.
const farFor = time.Minute

// Offers implements [allocator.Allocator]: a type for each pool. How many pods fit is the
// scheduler's business: those that do not fit yet wait. A pool without a node that takes pods
// has none available, and its note says why.
func (a *Allocator) Offers(ctx context.Context, region, client string) ([]plan.Offer, error) {
	if region != "" {
		return nil, &menu.RegionError{Asked: region}
	}
	nodes, err := a.allNodes(ctx)
	if err != nil {
		return nil, err
	}
	var offers []plan.Offer
	for i := range a.config.Pools {
		offers = append(offers, a.offer(&a.config.Pools[i], nodes, cmp.Or(client, a.config.ClientNode)))
	}
	return offers, nil
}

// allNodes returns the nodes as they are watched, or as the API server has them, sorted by name.
func (a *Allocator) allNodes(ctx context.Context) (all []*corev1.Node, err error) {
	a.mu.Lock()
	all = slices.Collect(maps.Values(a.nodes))
	a.mu.Unlock()
	if len(all) == 0 { // they are not watched yet
		var list corev1.NodeList
		if err := a.client.list(ctx, nodeKind, &list); err != nil {
			return nil, a.explain(err, "list", "nodes", 0)
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// offer returns the type of a pool, for clients on a node.
func (a *Allocator) offer(p *Pool, nodes []*corev1.Node, client string) plan.Offer {
	o := plan.Offer{Type: p.Name, Spot: p.Spot, Memory: uint64(p.Memory.Value()), Cores: p.Cores, Available: -1, Price: plan.Dollars(p.Price)}
	if p.Spot {
		o.Notice = time.Duration(p.NoticeSeconds) * time.Second
	}
	var from *corev1.Node
	if i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == client }); i >= 0 {
		from = nodes[i]
	}
	members, err := p.members(nodes)
	if err != nil {
		o.Available, o.Note = 0, err.Error()
		return o
	}
	var names []string
	dearest := plan.Price(-1)
	for _, n := range members {
		names = append(names, n.Name)
		if d := a.distance(from, n); o.Distance == 0 || d < o.Distance {
			o.Distance = d
		}
		if price, stated, err := priceOf(n); err == nil && stated {
			dearest = max(dearest, price)
		}
	}
	if dearest >= 0 {
		o.Price = dearest
	}
	o.Note = "nodes " + few(names)
	a.mu.Lock()
	if f, ok := a.far[route{p.Name, client}]; ok && time.Since(f.at) < farFor {
		o.Distance = f.distance
	}
	a.mu.Unlock()
	return o
}

// members returns the nodes of a pool that take pods. The error says why there are none.
func (p *Pool) members(nodes []*corev1.Node) (all []*corev1.Node, err error) {
	var no []string
	for _, n := range nodes {
		switch {
		case !p.has(n):
		case n.Spec.Unschedulable:
			no = append(no, n.Name+" is cordoned")
		case !ready(n):
			no = append(no, n.Name+" is not ready")
		default:
			all = append(all, n)
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case len(no) > 0:
		return nil, fmt.Errorf("no node takes pods: %s", few(no))
	}
	return nil, fmt.Errorf("no node has the labels %v", labels.Set(p.Nodes))
}

// has reports whether a node is of the pool.
func (p *Pool) has(n *corev1.Node) bool {
	return labels.SelectorFromSet(p.Nodes).Matches(labels.Set(n.Labels))
}

// few lists the first names.
func few(names []string) string {
	const most = 8
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// priceOf returns the price that a node's annotation states.
func priceOf(n *corev1.Node) (_ plan.Price, stated bool, err error) {
	text, stated := n.Annotations[PriceAnnotation]
	if !stated {
		return 0, false, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= plan.MaxPrice.Dollars()) {
		return 0, true, fmt.Errorf("node %s: annotation %s %.40q: want 0 to %v dollars an hour", n.Name, PriceAnnotation, text, plan.MaxPrice.Dollars())
	}
	return plan.Dollars(v), true, nil
}

// distance returns the number of switches between two nodes: 1 on the same node or in the same
// rack, 3 in a zone, 5 beyond; 0: one is not known.
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
