package redytier

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
)

// routed is a cache on many VMs whose client threads serve some of them each.
func routed(t *testing.T, vms, threads, regions int, d *dialler, refuse func(*managerv1.ReallocateRequest) error) *Cache {
	t.Helper()
	c := newCluster(t, "mem", vms, 1<<20)
	c.refuse = refuse
	cache := c.create(t, Config{
		Capacity: int64(regions) << 12, RegionSize: 1 << 12, threadConns: vms, wrap: d.wrap,
		Configuration: Configuration{ClientThreads: threads, BatchSize: 1, QueueDepth: 8},
	})
	if cache.clients.threadSet.Load().routing == nil {
		t.Fatalf("%d threads serve %d VMs each", threads, vms)
	}
	return cache
}

// scribe is an application thread that reads and writes its part of a cache through one handle,
// and compares with an array.
type scribe struct {
	t       *testing.T
	client  *Client
	rand    *rand.Rand
	from    int64
	model   []byte
	pending sync.WaitGroup
}

// step starts a request, sometimes over several regions.
func (w *scribe) step() {
	n := 1 + w.rand.IntN(100)
	if w.rand.IntN(3) == 0 {
		n += w.rand.IntN(5 << 12)
	}
	at := w.rand.IntN(len(w.model) - n)
	buf, want := make([]byte, n), w.model[at:at+n]
	addr, write := w.from+int64(at), w.rand.IntN(2) == 0
	if write {
		for i := range buf {
			buf[i] = byte(w.rand.Uint32())
		}
	} else {
		want = bytes.Clone(want)
	}
	w.pending.Add(1)
	ended := func(got int, err error) {
		if err != nil || got != n {
			w.t.Errorf("%d bytes at %d, write %v: %d, %v", n, addr, write, got, err)
		} else if !write {
			testrun.Bytes(buf, nil).Want(w.t, want, "%d bytes at %d", n, addr)
		}
		w.pending.Done()
	}
	var err error
	switch try := w.rand.IntN(2) == 0; {
	case try && write:
		err = w.client.TryWrite(buf, addr, ended)
	case try:
		err = w.client.TryRead(buf, addr, ended)
	case write:
		err = w.client.Write(w.t.Context(), buf, addr, ended)
	default:
		err = w.client.Read(w.t.Context(), buf, addr, ended)
	}
	switch {
	case err == nil && write:
		copy(want, buf)
	case errors.Is(err, ErrBusy):
		w.pending.Done()
	case err != nil:
		w.t.Error(err)
		w.pending.Done()
	}
}

// A cache on many VMs behaves like an array while regions move and client threads are replaced:
// the requests of a handle keep their order whichever threads execute them, and Try forms that
// are refused have no effect.
func TestRoutedCallsAgainstAnArray(t *testing.T) {
	const vms, workers, each = 12, 3, 8 // regions of each worker
	cache := routed(t, vms, 5, workers*each, &dialler{}, nil)
	var running sync.WaitGroup
	stop := make(chan struct{})
	for i := range workers {
		w := &scribe{
			t: t, client: cache.NewClient(), rand: rand.New(rand.NewPCG(23, uint64(i))),
			from: int64(i*each) << 12, model: make([]byte, each<<12),
		}
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					w.pending.Wait()
					return
				default:
					w.step()
				}
				if n%200 == 0 {
					w.pending.Wait()
				}
			}
		})
	}
	configuration := cache.Configuration()
	for i := range 6 {
		if err := cache.Migrate(t.Context(), fmt.Sprintf("vm-%d", 2*i)); err != nil {
			t.Error(err)
		}
		configuration.ClientThreads = 1 + 2*(i+1)%5 // with one thread, it serves all VMs
		configuration.QueueDepth = 4 + i
		if err := cache.Reconfigure(t.Context(), configuration); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	running.Wait()
	if m := cache.Metrics(); m.Errors != 0 {
		t.Errorf("%+v", m)
	}
}

// However many handles use all of a cache, its client threads have the connections that they
// may have, and leave none.
func TestRoutedConnectionsAreFew(t *testing.T) {
	const vms, threads = 24, 6
	d := &dialler{}
	cache := routed(t, vms, threads, vms, d, nil)
	var pending sync.WaitGroup
	touch := func() {
		for range 2 * threads {
			k := cache.NewClient()
			for region := range cache.Capacity() >> 12 {
				pending.Add(1)
				err := k.Read(t.Context(), make([]byte, 8), region<<12, func(_ int, err error) {
					if err != nil {
						t.Error(err)
					}
					pending.Done()
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		pending.Wait()
	}
	touch()
	if n := d.open.Load(); n != vms {
		t.Errorf("%d connections of %d client threads to %d VMs, want one to each", n, threads, vms)
	}
	// More regions get threads, too.
	if err := cache.Reshape(t.Context(), 2*cache.Capacity(), SLO{}); err != nil {
		t.Fatal(err)
	}
	touch()
	if n := d.open.Load(); n != 2*vms {
		t.Errorf("%d connections to %d grants", n, 2*vms)
	}
}

// While a client thread is stuck, the part of a call that it has to execute waits behind its
// ring. Later calls wait too, or are refused without effect.
func TestSplitCallsAndAFullRing(t *testing.T) {
	cache := routed(t, 4, 4, 4, &dialler{}, nil)
	k := cache.NewClient()
	setGate := func(g gate) { cache.update(func(t *table) { t.regions.edit(1).gate = g }) }
	setGate(holdWrites)
	var pending sync.WaitGroup
	write := func(at int64, src string, push func([]byte, int64, Callback) error) error {
		pending.Add(1)
		err := push([]byte(src), at, func(n int, err error) {
			if err != nil || n != len(src) {
				t.Errorf("%q at %d: %d, %v", src, at, n, err)
			}
			pending.Done()
		})
		if err != nil {
			pending.Done()
		}
		return err
	}
	const border = 1 << 12
	for range clientRing + cache.Configuration().QueueDepth { // in the ring, and in the session
		testrun.Until(t, "a client thread accepts the write", func() bool { return write(border+100, "x", k.TryWrite) == nil })
	}
	if err := write(border-4, "splitted", k.TryWrite); err != nil {
		t.Fatalf("the first part has room: %v", err)
	}
	if err := write(border-4, "refused!", k.TryWrite); !errors.Is(err, ErrBusy) {
		t.Errorf("behind a part that waits: %v", err)
	}
	if err := write(border, "refused", k.TryWrite); !errors.Is(err, ErrBusy) {
		t.Errorf("of the stuck thread: %v", err)
	}
	later := make(chan error, 1)
	go func() {
		later <- write(border+2, "er", func(b []byte, at int64, cb Callback) error { return k.Write(t.Context(), b, at, cb) })
	}()
	setGate(0)
	if err := testrun.Receive(t, "the later write ends", later); err != nil {
		t.Error(err)
	}
	pending.Wait()
	got := make([]byte, 8)
	pending.Add(1)
	if err := k.Read(t.Context(), got, border-4, func(int, error) { pending.Done() }); err != nil {
		t.Fatal(err)
	}
	pending.Wait()
	if string(got) != "splitter" {
		t.Errorf("read %q", got)
	}
}

// A call that is split ends once, with the error of any part.
func TestSplitCallFails(t *testing.T) {
	cache := routed(t, 4, 4, 4, &dialler{}, func(*managerv1.ReallocateRequest) error { return errors.New("no other VM") })
	cache.lose(cache.table.Load().regions.at(2).endpoint.grant, errNoAnswer)
	ended := make(chan error, 2)
	buf := make([]byte, 4<<12)
	if err := cache.Read(t.Context(), buf, 0, func(n int, err error) {
		if n != 0 {
			t.Errorf("%d bytes with an error", n)
		}
		ended <- err
	}); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "the read ends", ended); !errors.Is(err, ErrRegionUnavailable) {
		t.Error(err)
	}
	if err := cache.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cache.TryRead(buf, 0, func(int, error) {}); !errors.Is(err, ErrDeleted) {
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Errorf("ended again: %v", err)
	default:
	}
}
