package fabric

import (
	"context"
	"errors"
	"testing"
	"time"
)

// script is a transport whose completions the test sets.
type script struct {
	QueuePair
	done []Completion
}

func (s *script) Poll(done []Completion) int {
	n := copy(done, s.done)
	s.done = s.done[n:]
	return n
}

func (s *script) Read([]byte, Remote, int64, uint64) error  { return nil }
func (s *script) Write([]byte, Remote, int64, uint64) error { return nil }
func (s *script) Submit() error                             { return nil }

// dialler is a provider of one queue pair.
type dialler struct {
	Provider
	pair QueuePair
}

func (d dialler) Dial(context.Context, string, []byte, int) (QueuePair, error) { return d.pair, nil }

// Bytes that arrive at this side, read or received, share one direction of its port, and no
// completion is reported before a round trip has passed.
func TestModelAccounts(t *testing.T) {
	const rtt, wire = int64(time.Second), int64(time.Millisecond) // the time of 1000 bytes
	model := Model{RTT: time.Duration(rtt), BitsPerSecond: 8e6}
	transport := &script{}
	opened, err := WithModel(dialler{pair: transport}, model).Dial(t.Context(), "", nil, 16)
	if err != nil {
		t.Fatal(err)
	}
	q := opened.(*modelledPair)
	buf := make([]byte, 1000)
	start := q.network.now()
	for i := range uint64(3) {
		if err := q.Read(buf, Remote{}, 0, i); err != nil {
			t.Fatal(err)
		}
		if err := q.Write(buf, Remote{}, 0, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Submit(); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(6) { // a read and a write whenever the wire is free
		if due, soonest := q.ops.at(i).due-start, rtt+wire*int64(i/2+1); due < soonest {
			t.Errorf("operation %d is due after %d ns, the network takes %d", i, due, soonest)
		}
	}
	transport.done = []Completion{{Op: OpRecv, N: 1000}, {Op: OpRecv, N: 1000}}
	q.gather()
	for i := range uint64(2) { // queued after the reads
		if due, soonest := q.recvs.at(i).due-start, rtt+wire*int64(3+i+1); due < soonest {
			t.Errorf("immediate %d is due after %d ns, the network takes %d", i, due, soonest)
		}
	}
}

// A write whose payload is passed to the adapter with the request saves the fetch of the
// payload (R51). A write that is one byte longer, a read, and a faster network save nothing.
func TestInlineLimit(t *testing.T) {
	for _, c := range []struct {
		model Model
		write bool
		bytes int
		want  time.Duration
	}{
		{Model{RTT: 3 * time.Microsecond, InlineLimit: 172}, true, 1, 2500},
		{Model{RTT: 3 * time.Microsecond, InlineLimit: 172}, true, 172, 2500},
		{Model{RTT: 3 * time.Microsecond, InlineLimit: 172}, true, 173, 3000},
		{Model{RTT: 3 * time.Microsecond, InlineLimit: 172}, false, 172, 3000},
		{Model{RTT: 3 * time.Microsecond}, true, 1, 3000},
		{Model{RTT: 400 * time.Nanosecond, InlineLimit: 172}, true, 1, 400},
	} {
		opened, err := WithModel(dialler{pair: &script{}}, c.model).Dial(t.Context(), "", nil, 16)
		if err != nil {
			t.Fatal(err)
		}
		q := opened.(*modelledPair)
		do := q.Read
		if c.write {
			do = q.Write
		}
		// In one batch with a read of one byte, which takes a round trip.
		if err := errors.Join(q.Read(make([]byte, 1), Remote{}, 0, 0), do(make([]byte, c.bytes), Remote{}, 0, 1), q.Submit()); err != nil {
			t.Fatal(err)
		}
		if got := c.model.RTT + time.Duration(q.ops.at(1).due-q.ops.at(0).due); got != c.want {
			t.Errorf("%v: %d bytes, write %v, take %v, want %v", c.model, c.bytes, c.write, got, c.want)
		}
	}
}
