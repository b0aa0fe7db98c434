package ssdtier

import (
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestPollOfABurst: if many large writes have completed, each Poll returns a few of them.
func TestPollOfABurst(t *testing.T) {
	for _, engine := range []Engine{EngineAuto, EnginePool} {
		t.Run(string(engine), func(t *testing.T) {
			d, err := OpenWith(t.TempDir(), Options{SegmentSize: 16 << 20, Engine: engine})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			if err := d.Start(0); err != nil {
				t.Fatal(err)
			}
			const writes, size = 12, pollWork / 2
			opened, err := d.NewQueue(writes)
			if err != nil {
				t.Fatal(err)
			}
			q := opened.(*diskQueue)
			defer func() { _ = q.Close() }()
			src := device.AlignedBuffer(size, d.Alignment())
			for i := range uint64(writes) {
				if err := q.Write(src, int64(i)*size, i); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Submit(); err != nil {
				t.Fatal(err)
			}
			over := make([]uint32, 0, writes)
			for len(over) < writes {
				if q.gather(); len(q.core.Ready()) == 0 && q.core.WantWake() {
					if err := q.park(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for _, n := range q.core.Ready() {
					over = append(over, n)
					q.core.Next()
				}
			}
			for _, n := range over {
				q.core.End(n)
			}
			var done [writes]device.Completion
			for left := writes; left > 0; left -= 2 {
				if n := q.Poll(done[:]); n != 2 {
					t.Fatalf("Poll: %d of %d writes of half a pollWork, want 2", n, left)
				}
			}
		})
	}
}

// TestQueueBesideSync makes a queue while the device holds what it holds during a Sync.
func TestQueueBesideSync(t *testing.T) {
	d := mustOpen(t, t.TempDir(), Options{})
	d.mu.Lock()
	defer d.mu.Unlock()
	made := make(chan error, 1)
	go func() {
		q, err := d.NewQueue(1)
		if err == nil {
			err = q.Close()
		}
		made <- err
	}()
	if err := testrun.Receive(t, "a queue is made", made); err != nil {
		t.Error(err)
	}
}
