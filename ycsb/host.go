package ycsb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// host has one store of a comparison: in this process, or in a child.
type host interface {
	// load opens the store and stores all records, and then as many more as are to be written
	// before the experiments.
	load(ctx context.Context, progress Progress) error
	run(ctx context.Context, spec Spec, progress Progress) (Result, error)
	Close() error
}

// inProcess is a host in this process. Its store's storage is open before load.
type inProcess struct {
	opening
	target *Target
	heap   uint64 // see Result.HeapBytesBefore
}

// newInProcess opens the storage of a store, such as a cache server; of a peer nothing.
func newInProcess(ctx context.Context, o opening) (*inProcess, error) {
	l := &inProcess{opening: o, target: new(Target), heap: heapBytes()}
	if isPeer(o.Device) {
		return l, nil
	}
	storage, err := OpenStorage(ctx, o.Device, o.Shape, o.Dir)
	if err != nil {
		return nil, err
	}
	l.target.Storage = *storage
	return l, nil
}

func (l *inProcess) load(ctx context.Context, progress Progress) error {
	if err := l.open(); err != nil {
		return err
	}
	l.target.heap = l.heap
	err := l.target.load(ctx, l.Shape, progress)
	if err == nil {
		err = l.target.churn(ctx, l.opening, progress)
	}
	if err == nil && l.Churn > 0 {
		Settle(ctx)
	}
	if err != nil {
		return fmt.Errorf("ycsb: device %s: %w", l.Device, err)
	}
	return nil
}

func (l *inProcess) open() (err error) {
	if !isPeer(l.Device) {
		l.target.Store, err = OpenStore(l.target.Device, l.Shape)
		return err
	}
	target, err := openPeer(l.Device, l.Shape, l.Caches, l.Dir)
	if err == nil {
		l.target = target
	}
	return err
}

func (l *inProcess) run(ctx context.Context, spec Spec, progress Progress) (Result, error) {
	return Run(ctx, l.target, spec, progress)
}

func (l *inProcess) Close() error {
	switch t := l.target; {
	case t.Store != nil || t.peer != nil:
		return t.Close()
	case t.Device != nil: // the store was not opened
		return errors.Join(t.Device.Close(), t.Release())
	}
	return nil
}

// Child starts a process that calls Serve, with env in its environment in addition to this
// one's. Each later line that it prints goes to lines.
type Child func(ctx context.Context, env []string, lines chan<- string) (*bench.Child, error)

// order is what a Comparison sends to its child, one line of JSON each: first to open the
// storage, then to load the store, then to run experiments.
type order struct {
	Open *opening `json:"open,omitempty"`
	Load *loading `json:"load,omitempty"`
	Run  *Spec    `json:"run,omitempty"`
}

type opening struct {
	Device Device `json:"device"`
	Shape  Shape  `json:"shape"`
	Caches int64  `json:"caches"` // bytes of a peer's caches
	Churn  int64  `json:"churn"`  // records that are written after loading
	Dir    string `json:"dir"`
}

func (o opening) subject() subject { return subject{o.Device, o.Shape.ReadCache} }

type loading struct {
	// GoMemory is the memory limit for the process's Go runtime: garbage is collected before it
	// is reached.
	GoMemory int64 `json:"go_memory"`
}

// answer is what a child sends, one line of JSON each: progress, and then the end of an order.
type answer struct {
	Added  int64   `json:"added,omitempty"`
	Done   bool    `json:"done,omitempty"`
	Error  string  `json:"error,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Serve carries out the orders of a Comparison in another process, until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := make(chan order)
	go func() {
		defer cancel() // the parent has gone, or gives up
		defer close(orders)
		for lines := json.NewDecoder(in); ; {
			var o order
			if lines.Decode(&o) != nil {
				return
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	answers := &answers{lines: json.NewEncoder(out)}
	var l *inProcess
	defer func() {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	for o := range orders {
		a := answer{Done: true}
		var failed error
		switch {
		case o.Open != nil:
			l, failed = newInProcess(ctx, *o.Open)
		case o.Load != nil:
			debug.SetMemoryLimit(o.Load.GoMemory)
			failed = l.load(ctx, answers)
		case o.Run != nil:
			a.Result = new(Result)
			*a.Result, failed = l.run(ctx, *o.Run, answers)
		}
		if failed != nil {
			a.Error = failed.Error()
		}
		if err := answers.send(a); err != nil {
			return fmt.Errorf("ycsb: answer: %w", err)
		}
	}
	return nil
}

// answers is the child's way to its parent, and the Progress of an order.
type answers struct {
	mu    sync.Mutex // guards lines
	lines *json.Encoder
}

func (s *answers) send(a answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.Encode(a)
}

func (*answers) Begin(string, int64) {}
func (s *answers) Add(n int64)       { _ = s.send(answer{Added: n}) } // the order's end is not sent either
func (*answers) End()                {}

// remote is a host in a child, which has a control group with a memory limit where one can be
// made.
type remote struct {
	name     subject
	child    *bench.Child
	lines    chan string
	group    *mem.Group // nil: no limit
	limit    memoryLimit
	goMemory int64
}

// newRemote starts the child, which opens the storage of the store. Then the child gets its
// limit, so that its servers, which are other machines' in truth, are outside.
func newRemote(ctx context.Context, start Child, o opening, limit memoryLimit, goMemory int64) (_ *remote, err error) {
	r := &remote{name: o.subject(), lines: make(chan string), limit: limit, goMemory: goMemory}
	if r.child, err = start(ctx, r.name.environment(), r.lines); err != nil {
		return nil, fmt.Errorf("ycsb: process of %v: %w", r.name, err)
	}
	if _, err = r.do(ctx, order{Open: &o}, bench.OrQuiet(nil)); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if limit.Bytes == 0 {
		return r, nil
	}
	if r.group, err = mem.NewGroup(limit.Bytes); err == nil {
		err = r.group.Add(r.child.PID())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ycsb: memory limit of %v: %w", r.name, err), r.Close())
	}
	return r, nil
}

func (r *remote) load(ctx context.Context, progress Progress) error {
	_, err := r.do(ctx, order{Load: &loading{r.goMemory}}, progress)
	return err
}

func (r *remote) run(ctx context.Context, spec Spec, progress Progress) (Result, error) {
	progress.Begin(spec.name(), int64(spec.Warmup+spec.Duration))
	defer progress.End()
	a, err := r.do(ctx, order{Run: &spec}, progress)
	if err != nil {
		return Result{}, err
	}
	return *a.Result, nil
}

// do sends an order and waits for its end. If ctx ends, the child does, too.
func (r *remote) do(ctx context.Context, o order, progress Progress) (answer, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return answer{}, err
	}
	if _, err := r.child.Write(append(text, '\n')); err != nil {
		return answer{}, r.ended(err)
	}
	for {
		select {
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		case line, ok := <-r.lines:
			if !ok {
				return answer{}, r.ended(io.EOF)
			}
			var a answer
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				return answer{}, fmt.Errorf("ycsb: process of %v: %q: %w", r.name, line, err)
			}
			if !a.Done {
				progress.Add(a.Added)
				continue
			}
			if a.Error != "" || o.Run != nil && a.Result == nil {
				return answer{}, cmp.Or(context.Cause(ctx), errors.New(cmp.Or(a.Error, "no result")))
			}
			return a, nil
		}
	}
}

// ended returns the error of a child that has ended by itself.
func (r *remote) ended(err error) error {
	if r.group != nil && r.group.Kills() > 0 {
		return &killedError{r.name, r.limit}
	}
	return fmt.Errorf("ycsb: the process of %v has ended: %w", r.name, err)
}

// killedError is the error of a store whose process the kernel has killed at its memory limit.
type killedError struct {
	store subject
	limit memoryLimit
}

func (e *killedError) Error() string {
	return fmt.Sprintf("ycsb: %v needs more memory than the limit of %v (%s): the kernel killed it", e.store, units.Size(e.limit.Bytes), e.limit.What)
}

func (r *remote) Close() error {
	go func() {
		for range r.lines { // what the child still says
		}
	}()
	err := r.child.Close()
	if r.group != nil {
		if r.group.Kills() > 0 {
			err = nil // reported as the failure of its order
		}
		err = errors.Join(err, r.group.Close())
	}
	return err
}
