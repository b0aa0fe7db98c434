package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/phase"
)

// countedDevice counts the work of a commit on a device. It can block its syncs.
type countedDevice struct {
	*device.Memory
	writes, syncs, manifests atomic.Int64
	end                      atomic.Int64                  // of the last write that was begun
	hold                     atomic.Pointer[chan struct{}] // closed to unblock syncs
	held                     chan struct{}                 // receives one value per blocked sync
	failing                  atomic.Bool                   // manifests cannot be written
	slow                     time.Duration                 // of a sync
}

func newCountedDevice() *countedDevice {
	return &countedDevice{Memory: device.NewMemory(), held: make(chan struct{}, 100)}
}

// holdSyncs blocks syncs until release is called.
func (d *countedDevice) holdSyncs() (release func()) {
	c := make(chan struct{})
	d.hold.Store(&c)
	return func() {
		d.hold.Store(nil)
		close(c)
	}
}

func (d *countedDevice) Sync() error {
	d.syncs.Add(1)
	time.Sleep(d.slow)
	if c := d.hold.Load(); c != nil {
		d.held <- struct{}{}
		<-*c
	}
	return d.Memory.Sync()
}

func (d *countedDevice) WriteMeta(name string, data []byte) error {
	d.manifests.Add(1)
	if d.failing.Load() {
		return device.ErrFault
	}
	return d.Memory.WriteMeta(name, data)
}

func (d *countedDevice) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Memory.NewQueue(depth)
	return &countedQueue{q, d}, err
}

type countedQueue struct {
	device.Queue
	d *countedDevice
}

func (q *countedQueue) Write(src []byte, addr int64, tag uint64) error {
	q.d.writes.Add(1)
	q.d.end.Store(addr + int64(len(src)))
	return q.Queue.Write(src, addr, tag)
}

// work returns the numbers of writes, syncs and manifests.
func (d *countedDevice) work() [3]int64 {
	return [3]int64{d.writes.Load(), d.syncs.Load(), d.manifests.Load()}
}

// TestWaitingCommitsShare makes many commits wait for one. They share one barrier, one sync
// and one manifest, and each contains all writes before it.
func TestWaitingCommitsShare(t *testing.T) {
	const waiting = 20
	disk := newCountedDevice()
	opts := small(disk, 8, 8)
	st := open(t, opts)
	put := func(n uint64) {
		t.Helper()
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	before, barriers := disk.work(), st.Metrics().Barriers.Count
	release := disk.holdSyncs()
	ends := make(chan error)
	commit := func(ctx context.Context) { ends <- st.Commit(ctx) }
	go commit(t.Context())
	testrun.Receive(t, "its barrier is over", disk.held)
	var needs [waiting]uint64
	for n := range uint64(waiting) {
		put(n + 1)
		needs[n] = st.NextCommit()
		go commit(t.Context())
		testrun.Until(t, "it waits with the others", func() bool { return st.checkpointer.machine.Gathered() == int(n)+1 })
	}
	given, cancel := context.WithCancel(t.Context())
	go commit(given)
	testrun.Until(t, "another one waits", func() bool { return st.checkpointer.machine.Gathered() == waiting+1 })
	cancel()
	if err := testrun.Receive(t, "the commit that gave up ends", ends); !errors.Is(err, context.Canceled) {
		t.Errorf("a commit that gave up: %v", err)
	}
	release()
	for range waiting + 1 {
		if err := testrun.Receive(t, "a commit ends", ends); err != nil {
			t.Error(err)
		}
	}
	after := disk.work()
	if n := st.Metrics().Barriers.Count - barriers; n != 2 {
		t.Errorf("%d barriers for 1 commit and %d that waited, want 2", n, waiting)
	}
	if after[1]-before[1] != 2 || after[2]-before[2] != 2 {
		t.Errorf("%d syncs and %d manifests, want 2 of each", after[1]-before[1], after[2]-before[2])
	}
	if last := slices.Max(needs[:]); st.LastCommit() < last {
		t.Errorf("the last commit is %d, writes need %d", st.LastCommit(), last)
	}
	crash(t, st)
	opts.Device = disk.Reopen()
	st = open(t, opts)
	for n, got := range contents(t, st, waiting+1) {
		if got != uint64(n) {
			t.Errorf("key %d: %d", n, got)
		}
	}
	closeAll(t, st)
}

// TestWaitForCommit: what the commit in progress has needs that one only, and what came later the
// next one. What is durable waits for nothing.
func TestWaitForCommit(t *testing.T) {
	disk := newCountedDevice()
	st := open(t, small(disk, 8, 8))
	put := func(n uint64) (number uint64) {
		t.Helper()
		if err := st.Upsert(t.Context(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
		return st.NextCommit()
	}
	barriers := st.Metrics().Barriers.Count
	first := put(1)
	release := disk.holdSyncs()
	type end struct {
		number uint64
		err    error
	}
	ends := make(chan end)
	wait := func(ctx context.Context, number uint64) { ends <- end{number, st.WaitForCommit(ctx, number)} }
	go wait(t.Context(), first)
	testrun.Receive(t, "its barrier is over", disk.held)
	second := put(2)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.WaitForCommit(ended, first); !errors.Is(err, context.Canceled) {
		t.Errorf("one that gave up: %v", err)
	}
	go wait(t.Context(), first)
	for n := range 3 {
		go wait(t.Context(), second)
		testrun.Until(t, "it waits for the next one", func() bool { return st.checkpointer.machine.Gathered() == n+1 })
	}
	release()
	for range 5 {
		if e := testrun.Receive(t, "a wait ends", ends); e.err != nil || st.LastCommit() < e.number {
			t.Errorf("after commit %d one that waits for %d ends: %v", st.LastCommit(), e.number, e.err)
		}
	}
	if err := st.WaitForCommit(t.Context(), second); err != nil {
		t.Error(err)
	}
	if n := st.Metrics().Barriers.Count - barriers; n != 2 {
		t.Errorf("%d barriers, want 2", n)
	}
	closeAll(t, st)
}

// owing is a device in blocks that takes the log's end with a commit. Until that is written, it
// cannot sync.
type owing struct {
	*countedDevice
	owes atomic.Int64
}

func (d *owing) Alignment() int { return 4096 }

func (d *owing) Commit(name string, data []byte) error {
	return errors.Join(d.Sync(), d.WriteMeta(name, data))
}

func (d *owing) CommitWith(src []byte, addr int64, name string, data []byte) (bool, error) {
	d.owes.Store(addr + int64(len(src)))
	return true, d.countedDevice.WriteMeta(name, data)
}

func (d *owing) may() error {
	if d.end.Load() < d.owes.Load() {
		return fmt.Errorf("the end of the log: %w", device.ErrTransient)
	}
	return nil
}

func (d *owing) Sync() error {
	if err := d.may(); err != nil {
		return err
	}
	return d.countedDevice.Sync()
}

func (d *owing) WriteMeta(name string, data []byte) error {
	if err := d.may(); err != nil {
		return err
	}
	return d.countedDevice.WriteMeta(name, data)
}

// TestCheckpointsOfADeviceThatOwes: what a commit left to the device is written for a checkpoint
// that cannot do without.
func TestCheckpointsOfADeviceThatOwes(t *testing.T) {
	for _, kind := range []CheckpointKind{Snapshot, FoldOver, Index} {
		t.Run(kind.String(), func(t *testing.T) {
			disk := &owing{countedDevice: newCountedDevice()}
			opts := small(disk, 8, 8)
			opts.PageSize, opts.Memory = 4096, 64<<10
			st := open(t, opts)
			for n := range uint64(3) {
				if err := st.Upsert(t.Context(), key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
				if err := st.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if disk.may() == nil {
				t.Fatal("the device owes nothing")
			}
			mustCheckpoint(t, st, CheckpointOptions{Kind: kind})
			closeAll(t, st)
		})
	}
}

// TestCommitsGather has callers commit again and again. A commit waits for those that the last one
// served, so all share each commit. Otherwise one caller and all others would take turns.
func TestCommitsGather(t *testing.T) {
	const callers, each = 8, 20
	disk := newCountedDevice()
	disk.slow = 2 * time.Millisecond
	st := open(t, small(disk, 8, 8))
	testrun.Until(t, "they share commits", func() bool {
		before := st.Metrics().Barriers.Count
		var group errgroup.Group
		for caller := range uint64(callers) {
			group.Go(func() error {
				for n := range uint64(each) {
					if err := errors.Join(st.Upsert(t.Context(), key8(caller), key8(n)), st.Commit(t.Context())); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		return st.Metrics().Barriers.Count-before < each*7/5
	})
	closeAll(t, st)
}

// TestWaitersCountOnce: a writer that comes while a commit is in progress that does not have its write is counted
// with the next commit only, which else waits for nobody.
func TestWaitersCountOnce(t *testing.T) {
	ctx := context.Background()
	st := open(t, small(device.NewMemory(), 8, 8))
	m := &st.checkpointer.machine
	group, _ := m.Join()
	if err := st.begin(ctx, phase.Commit, "a commit by hand"); err != nil {
		t.Fatal(err)
	}
	st.step(phase.Flush) // it has had its barrier
	waited := make(chan error)
	go func() { waited <- st.WaitForCommit(ctx, st.NextCommit()) }()
	testrun.Until(t, "the writer waits for the next commit", func() bool { return m.Gathered() == 1 })
	section, err := st.gate.Enter(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m.Finish(group, nil, false)
	st.end(phase.Commit)
	testrun.Until(t, "the next commit waits for the section", st.gate.Waiting)
	m.Join() // the caller of the first commit comes back
	if m.Missing() {
		t.Error("the next commit waits for more callers than there are")
	}
	st.gate.Leave(section)
	if err := testrun.Receive(t, "the commit ends", waited); err != nil {
		t.Error(err)
	}
	closeAll(t, st)
}

// TestCommitsOutliveTheirLeader ends the context of a commit that others have joined, while it
// waits for locks or for its turn. The others succeed.
func TestCommitsOutliveTheirLeader(t *testing.T) {
	for _, turn := range []bool{false, true} {
		t.Run(fmt.Sprintf("turn=%v", turn), func(t *testing.T) {
			disk := newCountedDevice()
			st := open(t, small(disk, 8, 8))
			if err := st.Upsert(context.Background(), key8(1), key8(1)); err != nil {
				t.Fatal(err)
			}
			first := make(chan error, 1)
			var release func()
			if turn { // another commit is in progress
				release = disk.holdSyncs()
				go func() { first <- st.Commit(t.Context()) }()
				testrun.Receive(t, "the commit syncs", disk.held)
			} else { // a session holds locks
				first <- nil
				section, err := st.gate.Enter(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				release = func() { st.gate.Leave(section) }
			}
			ctx, cancel := context.WithCancel(t.Context())
			led, followed := make(chan error), make(chan error)
			go func() { led <- st.Commit(ctx) }()
			testrun.Until(t, "the leader waits", func() bool { return st.checkpointer.machine.Gathered() == 1 })
			needs := st.NextCommit()
			go func() { followed <- st.Commit(t.Context()) }()
			testrun.Until(t, "the other waits", func() bool { return st.checkpointer.machine.Gathered() == 2 })
			cancel()
			if err := testrun.Receive(t, "the leader's commit ends", led); !errors.Is(err, context.Canceled) {
				t.Errorf("the leader: %v", err)
			}
			release()
			if err := errors.Join(testrun.Receive(t, "the first commit ends", first), testrun.Receive(t, "the following commit ends", followed)); err != nil {
				t.Error(err)
			}
			if st.LastCommit() < needs {
				t.Errorf("the last commit is %d, want %d", st.LastCommit(), needs)
			}
			closeAll(t, st)
		})
	}
}

// TestCommitOfNothing commits repeatedly. Without new writes nothing is written to the device,
// but the commit has a number. Close writes nothing either.
func TestCommitOfNothing(t *testing.T) {
	disk := newCountedDevice()
	opts := small(disk, 8, 8)
	opts.CountKeys = true
	now := int64(MinExpires)
	opts.now = func() int64 { return now }
	st := open(t, opts)
	s, err := st.NewNamedSession("it")
	if err != nil {
		t.Fatal(err)
	}
	commit := func(what string, writes bool) {
		t.Helper()
		before, needs := disk.work(), st.NextCommit()
		if err := st.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := disk.work(); (before != after) != writes {
			t.Errorf("%s: the device had %v before and %v after", what, before, after)
		}
		if st.LastCommit() < needs {
			t.Errorf("%s: the last commit is %d, want %d", what, st.LastCommit(), needs)
		}
		if p, ok := st.CommitPoint("it"); !ok || p.Until != s.Serial() {
			t.Errorf("%s: commit point %+v, %v, after %d operations", what, p, ok, s.Serial())
		}
	}
	upsert := func() {
		t.Helper()
		if err := s.Upsert(key8(1), key8(1)); err != nil {
			t.Fatal(err)
		}
	}
	commit("the first one, of nothing", true)
	commit("the second one", false)
	upsert()
	commit("after a write", true)
	commit("after that", false)
	upsert()
	upsert() // in place
	commit("after a write in place", true)
	commit("after that", false)
	if _, err := s.Read(key8(1), nil); err != nil {
		t.Fatal(err)
	}
	commit("after a read of a session with a name", true)
	commit("after that", false)
	for n := range uint64(3) {
		if err := s.UpsertTTL(key8(10+n), key8(1), time.Duration(1+n)*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	commit("after writes with expiries", true)
	for range 4 {
		now += time.Minute.Milliseconds()
		commit("after keys have expired", false)
	}
	mustCheckpoint(t, st, CheckpointOptions{Kind: Index})
	commit("after a copy of the index", true)
	commit("after that", false)
	upsert()
	mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot})
	upsert() // in place again
	commit("after a snapshot", true)
	commit("after that", false)
	mustClear(t, st)
	commit("after Clear", true)
	commit("after that", false)
	if err := st.GrowIndex(t.Context()); err != nil {
		t.Fatal(err)
	}
	commit("after the index has grown", true)
	commit("after that", false)
	upsert()
	commit("after a write", true)

	// A recovered store knows what is durable.
	closeAll(t, s)
	crash(t, st)
	next := newCountedDevice()
	next.Memory = disk.Reopen()
	disk, opts.Device = next, next
	st = open(t, opts)
	if s, err = st.NewNamedSession("it"); err != nil {
		t.Fatal(err)
	}
	commit("after a crash", false)
	upsert()
	commit("after a write", true)
	closeAll(t, s)
	before := disk.work()
	closeAll(t, st)
	if after := disk.work(); before != after {
		t.Errorf("Close: the device had %v before and %v after", before, after)
	}
}

// TestCommitOfNothingAfterAnError makes a write of the manifest fail. The device may then have
// either manifest, so the next commit writes it again, and succeeds only if that does.
func TestCommitOfNothingAfterAnError(t *testing.T) {
	disk := newCountedDevice()
	st := open(t, small(disk, 8, 8))
	if err := errors.Join(st.Upsert(context.Background(), key8(1), key8(1)), st.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	mustCheckpoint(t, st, CheckpointOptions{Name: "mine", Kind: Snapshot})
	disk.failing.Store(true)
	if err := st.RemoveCheckpoint(context.Background(), "mine"); !errors.Is(err, device.ErrFault) {
		t.Fatal(err)
	}
	needs := st.NextCommit()
	if err := st.Commit(t.Context()); !errors.Is(err, device.ErrFault) || st.LastCommit() >= needs {
		t.Errorf("%v; the last commit is %d, want less than %d", err, st.LastCommit(), needs)
	}
	disk.failing.Store(false)
	before := disk.work()
	if err := st.Commit(t.Context()); err != nil || st.LastCommit() < needs {
		t.Errorf("%v; the last commit is %d, want %d", err, st.LastCommit(), needs)
	}
	if after := disk.work(); after[2] != before[2]+1 {
		t.Errorf("%d manifests written", after[2]-before[2])
	}
	closeAll(t, st)
}
