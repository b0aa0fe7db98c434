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

func (s *script) Read([]byte, Remote, int64, uint64) error             { return nil }
func (s *script) Write([]byte, Remote, int64, uint64) error            { return nil }
func (s *script) WriteImm([]byte, Remote, int64, uint32, uint64) error { return nil }
func (s *script) Submit() error                                        { return nil }

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

// pairs returns two queue pairs of one host behind a network.
func pairs(t *testing.T, m Model) (a, b *modelledPair) {
	t.Helper()
	p := WithModel(dialler{pair: &script{}}, m)
	for _, q := range []**modelledPair{&a, &b} {
		opened, err := p.Dial(t.Context(), "", nil, 64)
		if err != nil {
			t.Fatal(err)
		}
		*q = opened.(*modelledPair)
	}
	return a, b
}

// enqueue enqueues operations: r is a read, w a write, i a write with an immediate.
func enqueue(t *testing.T, q *modelledPair, ops string) {
	t.Helper()
	buf := make([]byte, 1000)
	for _, op := range ops {
		var err error
		switch op {
		case 'r':
			err = q.Read(buf, Remote{}, 0, 0)
		case 'w':
			err = q.Write(buf, Remote{}, 0, 0)
		case 'i':
			err = q.WriteImm(buf, Remote{}, 0, 0, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Submit(); err != nil {
		t.Fatal(err)
	}
}

// A queue pair has at most Reads reads outstanding. A further one takes another round trip, from
// when the read that it waits for is due; what is enqueued behind waits as well, also in a
// later batch. Writes wait for reads only, and another queue pair for nothing.
func TestOutstandingReads(t *testing.T) {
	const rtt = int64(time.Second)
	for _, c := range []struct {
		reads   int
		batches []string
		trips   []int64 // of each operation
	}{
		{2, []string{"rr"}, []int64{1, 1}},
		{2, []string{"rrrrr"}, []int64{1, 1, 2, 2, 3}},
		{2, []string{"rr", "rrr"}, []int64{1, 1, 2, 2, 3}},
		{2, []string{"rwrwrwi", "w"}, []int64{1, 1, 1, 1, 2, 2, 2, 2}},
		{1, []string{"rwr"}, []int64{1, 1, 2}},
		{1, []string{"wwwii"}, []int64{1, 1, 1, 1, 1}},
		{16, []string{"rrrrrrrrrrrrrrrrr"}, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2}},
		{0, []string{"rrrrr", "rrrrr"}, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		q, other := pairs(t, Model{RTT: time.Duration(rtt), Reads: c.reads})
		for _, ops := range c.batches {
			enqueue(t, q, ops)
		}
		enqueue(t, other, "r")
		for i, trips := range c.trips {
			// The batches of a case are submitted within far less than a round trip.
			if got := (q.ops.at(uint64(i)).due - q.ops.at(0).due + rtt/2) / rtt; got != trips-1 {
				t.Errorf("%d outstanding, %v: operation %d is due %d round trips after the first, want %d", c.reads, c.batches, i, got, trips-1)
			}
		}
		if got := (other.ops.at(0).due - q.ops.at(0).due + rtt/2) / rtt; got != 0 {
			t.Errorf("%d outstanding, %v: another queue pair's read waits %d round trips", c.reads, c.batches, got)
		}
	}
}

// An adapter handles its messages one after the other, those of all its queue pairs and those
// that it receives, and a message on the wire takes no less time than its bytes.
func TestMessagesPerSecond(t *testing.T) {
	const rtt, each = int64(time.Minute), int64(time.Second)
	for _, c := range []struct {
		bitsPerSecond float64
		want          int64 // between operations
	}{
		{0, each},           // the adapter is the bound
		{16e3, each},        // 1000 bytes take half a second
		{2000, 4 * each},    // the wire is
		{8e3, each},         // both are
		{8e3 / 3, 3 * each}, // a slower wire
	} {
		transport := &script{}
		q, other := pairs(t, Model{RTT: time.Duration(rtt), BitsPerSecond: c.bitsPerSecond, Messages: 1})
		q.QueuePair = transport
		enqueue(t, q, "rrr")
		for i := range uint64(2) {
			if got := q.ops.at(i+1).due - q.ops.at(i).due; got < c.want-1 || got > c.want+1 {
				t.Errorf("%g bit/s: operation %d is due %v after the one before, want %v", c.bitsPerSecond, i+1, time.Duration(got), time.Duration(c.want))
			}
		}
		begin := q.ops.at(0).due - rtt - c.want // or earlier
		enqueue(t, other, "w")
		if due, soonest := other.ops.at(0).due, begin+3*each+rtt; due < soonest {
			t.Errorf("%g bit/s: another queue pair's write is due %v before the adapter is free", c.bitsPerSecond, time.Duration(soonest-due))
		}
		transport.done = []Completion{{Op: OpRecv}, {Op: OpRecv}}
		q.gather()
		for i := range uint64(2) {
			if due, soonest := q.recvs.at(i).due, begin+(4+int64(i))*each+rtt; due < soonest {
				t.Errorf("%g bit/s: immediate %d is due %v before the adapter is free", c.bitsPerSecond, i, time.Duration(soonest-due))
			}
		}
	}
}

// Reads that wait at the adapter are completed in order, each once, and the owner's queue holds
// them meanwhile.
func TestWaitingReadsComplete(t *testing.T) {
	const reads = 64
	transport := &script{}
	q, _ := pairs(t, Model{RTT: 20 * time.Microsecond, Reads: 4})
	q.QueuePair = transport
	for tag := range uint64(reads) {
		if err := q.Read(nil, Remote{}, 0, tag); err != nil {
			t.Fatal(err)
		}
		transport.done = append(transport.done, Completion{Tag: tag})
	}
	if err := q.Read(nil, Remote{}, 0, reads); !errors.Is(err, ErrQueueFull) {
		t.Errorf("a read more than the depth: %v", err)
	}
	if err := q.Submit(); err != nil {
		t.Fatal(err)
	}
	var done [reads]Completion
	for n := uint64(0); n < reads; {
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range done[:q.Poll(done[:])] {
			if c.Tag != n {
				t.Fatalf("read %d completes after %d others", c.Tag, n)
			}
			n++
		}
	}
	if n := q.Poll(done[:]); n != 0 {
		t.Errorf("%d completions more", n)
	}
}
