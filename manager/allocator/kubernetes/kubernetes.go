package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/manager/allocator"
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

	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	// due has the names of the pods that are to be reported. Each is reported by one goroutine
	// at a time, so that the manager hears of a pod in order.
	due workqueue.TypedInterface[string]

	mu       sync.Mutex // guards the fields below
	closed   bool
	pods     map[string]*corev1.Pod  // by name, as last seen
	gone     map[string]*corev1.Pod  // those that were deleted and not reported since, by name
	began    map[string]time.Time    // when taking a pod back was seen to begin, by name
	nodes    map[string]*corev1.Node // by name
	told     map[string]string       // what the manager was told of a VM last, by id
	epoch    uint64                  // of the leader; 0: there was none yet
	vms      map[string]vm           // by id
	discards discarding
	far      map[route]found
}

// vm is what the leader knows of a VM.
type vm struct {
	is  standing
	pod types.UID // of one that is held; empty: any of its name
}

// has reports whether a pod is that of a VM that is held.
func (v vm) has(p *corev1.Pod) bool { return v.is == held && (v.pod == "" || v.pod == p.UID) }

// standing is what a VM is to the leader.
type standing int

const (
	unknown   standing = iota
	launching          // Launch creates its pod; a pod of its name that is seen may be an earlier one
	held               // the leader has it
	ending             // its pod is deleted
)

// route is from a pool to clients on a node.
type route struct{ pool, client string }

// found is the distance at which the last pod of a route was bound.
type found struct {
	distance int
	at       time.Time
}

var (
	_ allocator.Restorer    = (*Allocator)(nil)
	_ allocator.Transporter = (*Allocator)(nil)
)

// New returns an allocator for a manager's Options. It does not call the API server.
func New(opts Options) (*Allocator, error) {
	a := &Allocator{
		config: opts.Config, transport: cmp.Or(opts.Transport, "tcp"), log: cmp.Or(opts.Logger, slog.Default()),
		due: workqueue.NewTyped[string](), pods: make(map[string]*corev1.Pod), gone: make(map[string]*corev1.Pod), nodes: make(map[string]*corev1.Node),
		began: make(map[string]time.Time), told: make(map[string]string), vms: make(map[string]vm), far: make(map[route]found),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	err := a.config.check()
	if err == nil {
		err = a.CheckTransport(a.transport)
	}
	if err == nil {
		a.client, err = newClient(opts.Kubeconfig, a.config.Namespace)
	}
	if err != nil {
		a.cancel()
		return nil, fmt.Errorf("kubernetes allocator: %w", oneLine(err))
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
	a.running.Go(func() { follow(a.ctx, a, a.podKind(), a.setPods, a.setPod) })
	a.running.Go(func() { follow(a.ctx, a, nodeKind, a.setNodes, a.setNode) })
	a.running.Go(a.remind)
	for range reporters {
		a.running.Go(a.reportDue)
	}
}

// Close implements [allocator.Allocator]. Pods go on.
func (a *Allocator) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.due.ShutDown()
	a.running.Wait()
	return nil
}

// background calls do in the background, with a context that ends with the allocator.
func (a *Allocator) background(do func(ctx context.Context)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed { // after that, running is waited for
		a.running.Go(func() { do(a.ctx) })
	}
}

var nodeKind = kind{resource: "nodes"}

func (a *Allocator) podKind() kind {
	return kind{resource: "pods", namespaced: true, labels: OwnerLabel + "=" + a.config.Owner}
}

// errClosed is the error of Launch after Close.
var errClosed = errors.New("kubernetes allocator is closed")
