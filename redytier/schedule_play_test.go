package redytier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/memhttp"
)

// scheduleWorkers is the number of workers; the last uses the callback API.
const scheduleWorkers = 3

// schedulePlay is one run of a script.
type schedulePlay struct {
	*scheduleWorld
	setup scheduleSetup
	cache *Cache
	began time.Time

	tasks  sync.WaitGroup // steps that go on
	nocopy atomic.Int32   // Recover fails
	tail   scheduleTail

	told     sync.Mutex // guards the fields below
	failures []string
	events   []string // for people
}

// fail notes a failure.
func (p *schedulePlay) fail(format string, args ...any) {
	p.told.Lock()
	defer p.told.Unlock()
	p.failures = append(p.failures, fmt.Sprintf("at %v: "+format, append([]any{time.Since(p.began)}, args...)...))
}

// fine reports whether nothing has failed yet.
func (p *schedulePlay) fine() bool {
	p.told.Lock()
	defer p.told.Unlock()
	return len(p.failures) == 0
}

// note notes what happens.
func (p *schedulePlay) note(format string, args ...any) {
	p.told.Lock()
	defer p.told.Unlock()
	p.events = append(p.events, fmt.Sprintf("%12v ", time.Since(p.began))+fmt.Sprintf(format, args...))
}

// happened notes an event of the cache.
func (p *schedulePlay) happened(e Event) {
	p.note("event: %v of %s, %d to %d, epoch %d, data lost %v, %v", e.Kind, e.VM, e.From, e.To, e.Epoch, e.DataLost, e.Err)
	if p.setup.calm && (e.Kind == VMLost || e.Kind == DataLost || e.Kind == CacheDeleted) {
		p.fail("%v at %d to %d, though nothing fails: %v", e.Kind, e.From, e.To, e.Err)
	}
}

// recover is Config.Recover.
func (p *schedulePlay) recover(_ context.Context, dst []byte, addr int64) error {
	if p.nocopy.Load() > 0 {
		return errors.New("there is no copy now")
	}
	fillWords(dst, addr, wordOfCopy)
	return nil
}

// playSchedule plays a script in the bubble of t, and returns what failed, and what happened.
func playSchedule(t *testing.T, script scheduleScript) (failures, events []string) {
	p := &schedulePlay{setup: script.setup, began: time.Now(), tail: newScheduleTail()}
	s := &p.setup
	p.scheduleWorld = newScheduleWorld(t, scheduleMenu(s.region), scheduleModels(t))
	cfg := Config{
		Capacity: s.capacity, RegionSize: s.region, Configuration: s.configuration, Migration: s.migration,
		WaitForLost: s.waits, StrictOrder: s.strict, RefuseBusy: s.busy, OnEvent: p.happened,
	}
	if s.recovers {
		cfg.Recover = p.recover
	}
	if s.file {
		content := make([]byte, s.capacity/8*8)
		fillWords(content, 0, wordOfFile)
		cfg.File = filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(cfg.File, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.cache, err = Create(t.Context(), p.client, p.config(cfg)); err != nil {
		t.Fatal(err)
	}
	workers := make([]*scheduleWorker, scheduleWorkers)
	for i := range workers {
		if workers[i], err = newScheduleWorker(p, i, scheduleWorkers); err != nil {
			t.Fatal(err)
		}
	}
	over := make(chan struct{})
	var working sync.WaitGroup
	for _, w := range workers {
		working.Go(func() { w.work(over) })
	}
	for _, step := range script.steps {
		if time.Sleep(step.after); !p.fine() {
			break
		}
		p.note("step %v", step)
		p.tasks.Go(func() { p.step(step) })
	}
	p.tasks.Wait()
	p.heal()
	close(over)
	working.Wait()
	oks := 0
	for _, w := range workers {
		w.close()
		oks += w.oks
	}
	p.note("%d requests have succeeded", oks)
	p.end()
	return p.failures, p.events
}

// scheduleSLOs are the SLOs of reshapes: of one-sided access, and of batches.
var scheduleSLOs = []SLO{
	{MaxLatency: 20 * time.Microsecond, MinThroughput: 0.5e6, RecordSize: 64},
	{MaxLatency: time.Millisecond, MinThroughput: 5e6, RecordSize: 64},
}

// step makes a step and returns when it is over.
func (p *schedulePlay) step(s scheduleStep) {
	regions := p.cache.Regions()
	vm := regions[s.n%len(regions)].VM
	switch s.what {
	case "migrate":
		p.call(s, func(ctx context.Context) error { return p.cache.Migrate(ctx, vm) })
	case "reshape":
		slo := SLO{}
		if s.n%2 == 1 {
			slo = scheduleSLOs[s.n/2%2]
		}
		<-p.tail.turn
		p.call(s, func(ctx context.Context) error {
			return p.cache.Reshape(ctx, p.setup.capacity+int64(s.n/2)*p.setup.region*3/4, slo)
		})
		p.checkTail()
		p.tail.turn <- struct{}{}
	case "reconfigure":
		p.call(s, func(ctx context.Context) error {
			return p.cache.Reconfigure(ctx, configurations[s.n%len(configurations)])
		})
	case "wish":
		p.cache.watcher.apply(&managerv1.WatchResponse{
			Kind: managerv1.WatchResponse_KIND_RECONFIGURE, Saving: s.n%2 == 1,
			Configuration: configurations[s.n%len(configurations)].proto(), InsteadOf: p.cache.Configuration().proto(),
		})
	case "session":
		p.readAll(s)
	case "price":
		if err := p.cloud.price([]string{"two", "four", "eight"}[s.n%3], []float64{0.05, 0.15, 0.3, 0.6}[s.n/3]); err != nil {
			p.fail("%v: %v", s, err)
		}
	case "reclaim":
		p.cloud.reclaim(vm, s.d)
	case "kill":
		if p.cloud.kill(vm) && s.n%2 == 0 {
			time.Sleep(s.d)
			p.cloud.manager().Failed(vm, "killed")
		}
	case "stop":
		p.disturb(memhttp.Dropped, -1, of(vm), s.d)
	case "part":
		p.part(vm, s.d)
	case "alone":
		p.disturb(memhttp.Dropped, -1, between(clientParty, managerHost), s.d)
	case "unseen":
		p.disturb(memhttp.Dropped, -1, between(managerHost, vm), s.d)
	case "unanswered":
		p.disturb(memhttp.Unanswered, 1+s.n%4, func(c memhttp.Call) bool {
			return c.To == managerHost && c.From == clientParty && !strings.HasSuffix(c.Path, "Watch")
		}, time.Minute)
	case "late":
		p.disturb(memhttp.Late, 1+s.n%4, func(c memhttp.Call) bool {
			return (c.From == clientParty || c.From == managerHost) && !strings.HasSuffix(c.Path, "Watch")
		}, time.Minute)
	case "silent":
		p.disturb(memhttp.Dropped, 1+s.n%4, func(c memhttp.Call) bool { return c.From == clientParty && c.To != managerHost }, s.d)
	case "cut":
		p.eachServer(func(addr string) { p.fabric.set(addr, false) })
		p.eachServer(func(addr string) { p.fabric.set(addr, true) })
	case "faults":
		p.fabric.faults(fabric.FaultOptions{Seed: p.setup.seed, Cut: 0.001, Error: 0.002, Corrupt: 0.002, Delay: 0.05, Dial: 0.1})
		time.Sleep(s.d)
		p.fabric.faults(fabric.FaultOptions{})
	case "restart", "forget":
		p.restartManager(s.d, s.what == "forget")
	case "nocopy":
		p.nocopy.Add(1)
		time.Sleep(s.d)
		p.nocopy.Add(-1)
	default:
		p.fail("%v: no such step", s)
	}
}

// mayTake is how much longer than its context a call of the cache may take: it undoes what it
// has done, with calls that are bounded each.
const mayTake = 2 * time.Minute

// call makes a call of the cache, which may fail unless nothing fails, and must end.
func (p *schedulePlay) call(s scheduleStep, do func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), max(s.d, 10*time.Millisecond))
	defer cancel()
	began := time.Now()
	err := do(ctx)
	p.note("%s: %v", s.what, err)
	if took := time.Since(began); took > s.d+mayTake {
		p.fail("%v: it takes %v: %v", s, took, err)
	}
	if p.setup.calm && err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrCores) {
		p.fail("%v, though nothing fails: %v", s, err)
	}
}

// readAll reads the cache by a session of its own. Every word has a value of its own.
func (p *schedulePlay) readAll(s scheduleStep) {
	session, err := p.cache.NewSession(1 + s.n)
	if err != nil {
		p.note("session: %v", err)
		if p.setup.calm {
			p.fail("%v, though nothing fails: %v", s, err)
		}
		return
	}
	w := &scheduleWorker{schedulePlay: p, session: session, pending: map[uint64]*scheduleOp{}}
	op := &scheduleOp{buf: make([]byte, p.setup.capacity/8*8)}
	if err := session.Read(op.buf, 0, 0); err != nil {
		p.fail("%v: %v", s, err)
		return
	}
	w.pending[0], w.ops = op, []*scheduleOp{op}
	w.drain()
	w.close()
	if !p.fine() || op.err != nil {
		return
	}
	words := make([]byte, 8)
	for i := 0; i < len(op.buf); i += 8 {
		copy(words, op.buf[i:])
		if v := wordOf(words); v != 0 && v>>32 != uint64(i/8) {
			p.fail("%v: word at %d is %#x, which is no value of it", s, i, v)
			return
		}
	}
}

// part separates the client from a VM.
func (p *schedulePlay) part(vm string, d time.Duration) {
	addr := p.cloud.fabricAddr(vm)
	p.fabric.set(addr, false)
	p.disturb(memhttp.Dropped, -1, between(clientParty, vm), d)
	p.fabric.set(addr, true)
}

func (p *schedulePlay) eachServer(do func(addr string)) {
	var addrs []string
	for id := range p.cloud.vms() {
		addrs = append(addrs, p.cloud.fabricAddr(id))
	}
	sort.Strings(addrs)
	for _, addr := range addrs {
		do(addr)
	}
}
