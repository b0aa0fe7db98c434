package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// Options configure an allocator.
type Options struct {
	Config Config
	// Kubeconfig is a file. Default: $KUBECONFIG or ~/.kube/config, or the service account of
	// the pod that the manager runs in.
	Kubeconfig string
	// Transport is the default of requests. Default: tcp.
	Transport string
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger
}

// Allocator launches VMs as pods. They outlive it.
type Allocator struct {
	config    Config
	client    *client
	transport string
	log       *slog.Logger
	host      allocator.Host

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	closed bool
	pods   map[string]*corev1.Pod  // by name, as last seen
	nodes  map[string]*corev1.Node // by name
	told   map[string]string       // what the manager was told of a VM last, by id
	ending map[string]bool         // VMs that the manager has terminated, by id
	far    map[string]found        // by pool
	synced time.Time               // of the last Restore
}

// found is a distance at which a pod of a pool was bound, farther than planned.
type found struct {
	distance int
	at       time.Time
}

// farFor is the time for which a pool is offered at the distance of its last pod.
const farFor = time.Minute

var (
	_ allocator.Restorer    = (*Allocator)(nil)
	_ allocator.Transporter = (*Allocator)(nil)
)

// New returns an allocator for a manager's Options.
func New(opts Options) (*Allocator, error) {
	a := &Allocator{
		config: opts.Config, transport: cmp.Or(opts.Transport, "tcp"), log: cmp.Or(opts.Logger, slog.Default()),
		pods: make(map[string]*corev1.Pod), nodes: make(map[string]*corev1.Node),
		told: make(map[string]string), ending: make(map[string]bool), far: make(map[string]found),
	}
	err := a.config.check()
	if err == nil {
		err = a.CheckTransport(a.transport)
	}
	if err == nil {
		a.client, err = newClient(opts.Kubeconfig, a.config.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes allocator: %w", err)
	}
	return a, nil
}

// CheckTransport implements [allocator.Transporter]: pods of other nodes have no shared memory.
func (*Allocator) CheckTransport(name string) error {
	if name == "shm" || !slices.Contains(transport.BetweenProcesses(), name) {
		return fmt.Errorf("%w: %.40q: want tcp or verbs", allocator.ErrTransport, name)
	}
	return nil
}

// Transport implements [allocator.Allocator].
func (a *Allocator) Transport() string { return a.transport }

// Attach implements [allocator.Allocator]. It begins to watch pods and nodes.
func (a *Allocator) Attach(h allocator.Host) {
	a.host = h
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.running.Go(func() { follow(ctx, a, a.podKind(), a.setPods, a.setPod) })
	a.running.Go(func() { follow(ctx, a, nodeKind, a.setNodes, a.setNode) })
	a.running.Go(func() { a.tell(ctx) })
}

// Close implements [allocator.Allocator]. Pods go on.
func (a *Allocator) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	if a.cancel != nil {
		a.cancel()
	}
	a.running.Wait()
	return nil
}

var nodeKind = kind{resource: "nodes"}

func (a *Allocator) podKind() kind {
	return kind{resource: "pods", namespaced: true, labels: OwnerLabel + "=" + a.config.Owner}
}

// Offers implements [allocator.Allocator]: a type for each pool with a node. How many pods fit
// is the scheduler's business: those that do not fit yet wait.
func (a *Allocator) Offers(ctx context.Context, region string) ([]plan.Offer, error) {
	if region != "" {
		return nil, &menu.RegionError{Asked: region}
	}
	var nodes corev1.NodeList
	if err := a.client.list(ctx, nodeKind, &nodes); err != nil {
		return nil, fmt.Errorf("kubernetes allocator: list nodes: %w", err)
	}
	var from *corev1.Node
	for i := range nodes.Items {
		if nodes.Items[i].Name == a.config.ClientNode {
			from = &nodes.Items[i]
		}
	}
	var offers []plan.Offer
	for _, p := range a.config.Pools {
		o := plan.Offer{
			Type: p.Name, Spot: p.Spot, Memory: uint64(p.Memory.Value()), Cores: p.Cores, Available: -1,
		}
		if p.Spot {
			o.Notice = time.Duration(p.NoticeSeconds) * time.Second
		}
		price, members := -1.0, 0
		for i := range nodes.Items {
			n := &nodes.Items[i]
			if !labels.SelectorFromSet(p.Nodes).Matches(labels.Set(n.Labels)) || !ready(n) || n.Spec.Unschedulable {
				continue
			}
			members++
			if d := a.distance(from, n); o.Distance == 0 || d < o.Distance {
				o.Distance = d
			}
			if v, err := strconv.ParseFloat(n.Annotations[PriceAnnotation], 64); err == nil && v <= plan.MaxPrice.Dollars() {
				price = max(price, v)
			}
		}
		if members == 0 {
			continue
		}
		if price < 0 {
			price = p.Price
		}
		o.Price = plan.Dollars(price)
		a.mu.Lock()
		if f, ok := a.far[p.Name]; ok && time.Since(f.at) < farFor {
			o.Distance = f.distance
		}
		a.mu.Unlock()
		offers = append(offers, o)
	}
	return offers, nil
}

// Launch implements [allocator.Allocator]: it creates the pod.
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
		return errors.New("kubernetes allocator is closed")
	case url == "":
		return errors.New("kubernetes allocator: the manager is not served yet: set its URL")
	}
	env := a.host.Credentials(spec.ID).Env()
	if len(env) > 0 {
		if err := a.insist(ctx, func() error { return a.client.create(ctx, "secrets", a.secret(spec.ID, env), false) }); err != nil {
			return a.explain(err, "create", "secrets", spec.Memory)
		}
	}
	if err := a.insist(ctx, func() error { return a.client.create(ctx, "pods", a.pod(spec, p, url, len(env) > 0), false) }); err != nil {
		return errors.Join(a.explain(err, "create", "pods", spec.Memory), a.removeSecret(context.WithoutCancel(ctx), spec.ID))
	}
	return nil
}

// insist repeats a call while the API server is not there, until ctx ends. That the object
// exists already is no error.
func (a *Allocator) insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		var status apierrors.APIStatus
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
			return nil
		case errors.As(err, &status) && !apierrors.IsServerTimeout(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err):
			return err
		case !clock.Sleep(ctx, 100*time.Millisecond):
			return fmt.Errorf("API server %s: %w", a.client.host, err)
		}
	}
}

// explain makes an error of the API server one line that names what is wrong.
func (a *Allocator) explain(err error, verb, resource string, memory uint64) error {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return &api.CapacityError{What: "quota of namespace " + a.client.namespace, Asked: memory, Why: err.Error()}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("kubernetes allocator: no right to %s %s in namespace %s: %w", verb, resource, a.client.namespace, err)
	}
	return fmt.Errorf("kubernetes allocator: %s %s in namespace %s: %w", verb, resource, a.client.namespace, err)
}

// Terminate implements [allocator.Allocator]: it deletes the pod, and waits until it is gone. A
// pod whose node is lost is deleted without waiting for its kubelet.
func (a *Allocator) Terminate(ctx context.Context, id string) error {
	name := podName(id)
	a.mu.Lock()
	a.ending[id] = true
	p := a.pods[name]
	grace := int64(1)
	if p != nil && p.Spec.NodeName != "" && a.lost(p) != "" {
		grace = 0
	}
	a.mu.Unlock()
	if err := a.client.remove(ctx, "pods", name, &grace); err != nil && !apierrors.IsNotFound(err) {
		return a.explain(err, "delete", "pods", 0)
	}
	for {
		err := a.client.core.Get().Namespace(a.client.namespace).Resource("pods").Name(name).Do(ctx).Error()
		switch {
		case apierrors.IsNotFound(err):
			a.forget(id)
			return a.removeSecret(ctx, id)
		case !clock.Sleep(ctx, 50*time.Millisecond):
			return fmt.Errorf("kubernetes allocator: pod %s/%s is not gone: %w", a.client.namespace, name, cmp.Or(err, ctx.Err()))
		}
	}
}

func (a *Allocator) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, podName(id))
	delete(a.told, id)
	delete(a.ending, id)
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
		id := p.Labels[VMLabel]
		switch ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded; {
		case slices.Contains(wanted, id) && !ended:
			running = append(running, id)
		case !ended || p.DeletionTimestamp == nil:
			a.running.Go(func() { // its end need not be waited for
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := a.Terminate(ctx, id); err != nil {
					a.log.Warn("pod of an earlier manager not deleted", "pod", p.Name, "err", err)
				}
			})
		}
	}
	a.mu.Lock()
	clear(a.told)
	a.synced = time.Now()
	a.mu.Unlock()
	return running, nil
}
