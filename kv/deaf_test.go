package kv

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/ssdtier"
)

// deaf is a device whose queues, if they are used while now is set, report no completions from then on and
// fail to wait.
type deaf struct {
	device.Device
	now atomic.Bool
}

var errDeaf = errors.New("nobody tells what is under way")

func (d *deaf) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &deafQueue{Queue: q, d: d}, err
}

type deafQueue struct {
	device.Queue
	d      *deaf
	reads  bool
	fails  bool
	closed bool
}

func (q *deafQueue) isDeaf() bool {
	q.fails = q.fails || q.reads && q.d.now.Load()
	return q.fails
}

func (q *deafQueue) Read(dst []byte, addr int64, tag uint64) error {
	q.reads = true
	return q.Queue.Read(dst, addr, tag)
}

func (q *deafQueue) Poll(done []device.Completion) int {
	if q.closed {
		panic("a closed queue was polled")
	}
	if q.isDeaf() {
		return 0
	}
	return q.Queue.Poll(done)
}

func (q *deafQueue) Wait(ctx context.Context) error {
	if q.isDeaf() {
		return errDeaf
	}
	return q.Queue.Wait(ctx)
}

func (q *deafQueue) Close() error {
	q.closed = true
	err := q.Queue.Close()
	if q.isDeaf() {
		err = errors.Join(err, errDeaf)
	}
	return err
}

// TestCloseOfADeafSession closes sessions whose queues fail to wait, with pending operations
// of every kind, and then the store. Another store can then use the directory.
func TestCloseOfADeafSession(t *testing.T) {
	const keys = 2000
	dir := t.TempDir()
	raise := func() (*Store, *deaf) {
		ssd, err := ssdtier.OpenWith(dir, ssdtier.Options{Buffered: true, Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		d := &deaf{Device: ssd}
		opts := small(d, 8, 8)
		opts.PageSize, opts.Memory, opts.Logger = 4<<10, 16<<10, silent
		return open(t, opts), d
	}
	st, dev := raise()
	for n := range uint64(keys) {
		if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	dev.now.Store(true)
	modify := func() Op { return Op{Kind: OpRMW, Key: key8(2), Modify: add(1)} }
	for name, use := range map[string]func(s *Session) error{
		"plain": func(s *Session) error {
			_, err := s.Read(key8(1), nil)
			return err
		},
		"batch": func(s *Session) error { return s.Do(context.Background(), []Op{{Key: key8(1)}, modify()}) },
		"stream": func(s *Session) error {
			read, rmw := Op{Key: key8(1)}, modify()
			if err := errors.Join(s.Submit(&read), s.Submit(&rmw)); err != nil {
				return err
			}
			return s.Wait(context.Background())
		},
		"stream that nobody waits for": func(s *Session) error {
			read, rmw := Op{Key: key8(1)}, modify()
			return errors.Join(s.Submit(&read), s.Submit(&rmw), errDeaf)
		},
	} {
		s, err := st.NewNamedSession(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := use(s); !errors.Is(err, errDeaf) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Close(); !errors.Is(err, errDeaf) {
			t.Errorf("%s: closed with %v", name, err)
		}
		closeAll(t, s)
		if n := s.Poll(make([]*Op, 4)); n > 0 || s.Pending() > 0 {
			t.Errorf("%s: %d operations polled, %d pending", name, n, s.Pending())
		}
		if err := s.Wait(context.Background()); err != nil {
			t.Errorf("%s: waited for a closed session: %v", name, err)
		}
		if _, err := s.Read(key8(1), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: a closed session reads: %v", name, err)
		}
		if p := st.ended[name]; name != "plain" && len(p.Excluding) != 1 {
			t.Errorf("%s: the commit point is %v, with a read-modify-write that had no effect", name, p)
		}
	}
	if _, err := st.Read(context.Background(), key8(1), nil); !errors.Is(err, errDeaf) {
		t.Errorf("the store read: %v", err)
	}
	dev.now.Store(false)
	readBack(st.Read(context.Background(), key8(1), nil)).Want(t, key8(1), "the store")
	closeAll(t, st)
	st, _ = raise()
	for n := range uint64(keys) {
		readBack(st.Read(context.Background(), key8(n), nil)).Want(t, key8(n), "key %d", n)
	}
	closeAll(t, st)
}

// A scan whose queue fails to wait is the only one that fails.
func TestScanAfterADeafOne(t *testing.T) {
	const keys = 2000
	dev := &deaf{Device: device.NewMemory()}
	opts := small(dev, 8, 8)
	opts.Logger = silent
	st := open(t, opts)
	defer closeAll(t, st)
	fillUp(t, st, keys)
	for name, scan := range map[string]func() iter.Seq2[Record, error]{
		"Scan":    st.Scan,
		"ScanLog": func() iter.Seq2[Record, error] { return st.ScanLog(0, 0) },
	} {
		dev.now.Store(true)
		for _, err := range scan() {
			if !errors.Is(err, errDeaf) {
				t.Errorf("%s on a deaf device: %v", name, err)
			}
		}
		dev.now.Store(false)
		n := 0
		for _, err := range scan() {
			if n++; err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if n != keys {
			t.Errorf("%s found %d keys, want %d", name, n, keys)
		}
	}
}
