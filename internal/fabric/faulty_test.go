package fabric_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/tcp"
)

// Without faults the wrapper behaves like the provider that it wraps, also if it only delays
// completions.
func TestFaultyConformance(t *testing.T) {
	for name, inner := range map[string]fabrictest.Open{
		"mem":     mem.Open,
		"shm":     openShm,
		"tcp":     openTCP,
		"network": modelled(mem.Open, fabric.Model{RTT: 2900 * time.Nanosecond, BitsPerSecond: 1e11}),
	} {
		for _, opts := range []fabric.FaultOptions{{}, {Delay: 0.5, MaxDelay: 3}} {
			t.Run(fmt.Sprintf("%s/delay=%v", name, opts.Delay), func(t *testing.T) {
				fabrictest.Run(t, func() fabric.Provider { return fabric.WithFaults(inner(), opts) })
			})
		}
	}
}

// faultyLink is a client with faults and its server.
type faultyLink struct {
	*testing.T
	client      *fabric.Faulty
	here, there fabric.QueuePair
	region      fabric.Region
	remote      fabric.Remote
}

// TestModelledFaults wraps the faults in a modelled network, as Redy does.
func TestModelledFaults(t *testing.T) {
	fabrictest.Run(t, func() fabric.Provider {
		faulty := fabric.WithFaults(mem.Open(), fabric.FaultOptions{Delay: 0.3})
		return fabric.WithModel(faulty, fabric.Model{RTT: 20 * time.Microsecond, BitsPerSecond: 1e10})
	})
}

func newFaultyLink(t *testing.T, server fabric.Provider, client fabric.Provider) *faultyLink {
	l := &faultyLink{T: t, client: fabric.WithFaults(client, fabric.FaultOptions{Seed: 7})}
	t.Cleanup(func() { l.must(errors.Join(l.client.Close(), server.Close())) })
	listener, err := server.Listen("", 64)
	l.must(err)
	accepted := make(chan fabric.QueuePair)
	go func() {
		r, err := listener.Accept(context.Background())
		if err != nil {
			t.Error(err)
			close(accepted)
			return
		}
		q, err := r.Accept(nil, fabric.ReadWrite)
		if err != nil {
			t.Error(err)
		}
		accepted <- q
	}()
	l.here, err = l.client.Dial(t.Context(), listener.Addr(), nil, 64)
	l.must(err)
	l.there = <-accepted
	l.region, err = server.Alloc(4096)
	l.must(err)
	l.remote, err = l.here.Import(t.Context(), l.region.Token())
	l.must(err)
	return l
}

func (l *faultyLink) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// writes enqueues and submits n writes of one byte, the i-th of byte i, and returns their
// errors.
func (l *faultyLink) writes(n int) (ended []error) {
	l.Helper()
	for i := range n {
		if err := l.here.Write([]byte{byte(i)}, l.remote, int64(i), uint64(i)); err != nil {
			l.Fatal(err)
		}
	}
	if err := l.here.Submit(); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
		l.Fatal(err)
	}
	var done [3]fabric.Completion
	for len(ended) < n {
		for _, c := range done[:l.here.Poll(done[:])] {
			if c.Tag != uint64(len(ended)) || c.Op != fabric.OpWrite {
				l.Fatalf("completion %+v, want %d", c, len(ended))
			}
			ended = append(ended, c.Err)
		}
		if len(ended) < n {
			l.must(l.here.Wait(l.Context()))
		}
	}
	return ended
}

func faultyTransports(t *testing.T, run func(l *faultyLink)) {
	t.Run("mem", func(t *testing.T) { run(newFaultyLink(t, mem.Open(), mem.Open())) })
	t.Run("tcp", func(t *testing.T) { run(newFaultyLink(t, tcp.Open(tcp.Options{}), tcp.Open(tcp.Options{}))) })
}

// TestFailAt makes each operation of a series fail in turn, and no other.
func TestFailAt(t *testing.T) {
	faultyTransports(t, func(l *faultyLink) {
		const n = 5
		for k := range n {
			clear(l.region.Bytes())
			l.client.Set(fabric.FaultOptions{FailAt: int64(k + 1)})
			for i, err := range l.writes(n) {
				if errors.Is(err, fabric.ErrFault) != (i == k) || (err != nil) != (i == k) {
					l.Errorf("operation %d of %d to fail: %v", i, k, err)
				}
				if moved := l.region.Bytes()[i] == byte(i); i > 0 && moved != (i != k) {
					l.Errorf("operation %d of %d to fail: bytes moved: %v", i, k, moved)
				}
			}
		}
		if c := l.client.Counts(); c.Errors != n || c.Cuts != 0 {
			l.Errorf("counts %+v", c)
		}
	})
}

// TestCutAt cuts the connection in the middle of a batch. All operations from there on end
// with that error, and both sides notice.
func TestCutAt(t *testing.T) {
	faultyTransports(t, func(l *faultyLink) {
		l.client.Set(fabric.FaultOptions{CutAt: 4})
		for i, err := range l.writes(8) {
			if err != nil && !errors.Is(err, fabric.ErrDisconnected) {
				l.Errorf("operation %d: %v", i, err)
			}
			if i >= 3 && (err == nil || !errors.Is(err, fabric.ErrFault) || l.region.Bytes()[i] != 0) {
				l.Errorf("operation %d behind the cut: %v", i, err)
			}
		}
		if err := l.here.Read(nil, l.remote, 0, 0); !errors.Is(err, fabric.ErrDisconnected) {
			l.Errorf("read after the cut: %v", err)
		}
		if err := l.here.Wait(l.Context()); !errors.Is(err, fabric.ErrDisconnected) {
			l.Errorf("wait after the cut: %v", err)
		}
		for l.there.Err() == nil {
			if err := l.there.Wait(l.Context()); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
				l.Fatal(err)
			}
		}
		if c := l.client.Counts(); c.Cuts != 1 {
			l.Errorf("counts %+v", c)
		}
	})
}

// TestCutAll ends a pending Wait.
func TestCutAll(t *testing.T) {
	faultyTransports(t, func(l *faultyLink) {
		ended := make(chan error)
		go func() {
			var err error
			for err == nil {
				err = l.here.Wait(context.Background())
			}
			ended <- err
		}()
		l.client.CutAll()
		if err := <-ended; !errors.Is(err, fabric.ErrDisconnected) || !errors.Is(err, fabric.ErrFault) {
			l.Errorf("wait: %v", err)
		}
	})
}

// TestCorrupt changes one bit of each write that an immediate announces, and nothing else.
func TestCorrupt(t *testing.T) {
	faultyTransports(t, func(l *faultyLink) {
		l.client.Set(fabric.FaultOptions{Corrupt: 1})
		sent := bytes.Repeat([]byte{0x5a}, 64)
		for range 20 {
			l.must(l.here.WriteImm(sent, l.remote, 0, 9, 1))
			l.must(l.here.Submit())
			var done [1]fabric.Completion
			for l.there.Poll(done[:]) == 0 {
				l.must(l.there.Wait(l.Context()))
			}
			wrong := 0
			for i, b := range l.region.Bytes()[:len(sent)] {
				for x := b ^ sent[i]; x != 0; x &= x - 1 {
					wrong++
				}
			}
			if wrong != 1 || done[0].Imm != 9 || !bytes.Equal(sent, bytes.Repeat([]byte{0x5a}, 64)) {
				l.Fatalf("%d wrong bits, immediate %d", wrong, done[0].Imm)
			}
			for l.here.Poll(done[:]) == 0 {
				l.must(l.here.Wait(l.Context()))
			}
		}
	})
}

// TestFaultyDial makes connecting fail.
func TestFaultyDial(t *testing.T) {
	faultyTransports(t, func(l *faultyLink) {
		l.client.Set(fabric.FaultOptions{Dial: 1, Import: 1})
		if _, err := l.client.Dial(l.Context(), "anywhere", nil, 1); !errors.Is(err, fabric.ErrFault) {
			l.Errorf("dial: %v", err)
		}
		if _, err := l.here.Import(l.Context(), l.region.Token()); !errors.Is(err, fabric.ErrFault) {
			l.Errorf("import: %v", err)
		}
	})
}

// TestFaultsRepeat checks that a run is determined by its seed.
func TestFaultsRepeat(t *testing.T) {
	run := func() (ended []error) {
		l := newFaultyLink(t, mem.Open(), mem.Open())
		l.client.Set(fabric.FaultOptions{Error: 0.3})
		for range 10 {
			ended = append(ended, l.writes(30)...)
		}
		return ended
	}
	first, second := run(), run()
	failed := 0
	for i := range first {
		if (first[i] == nil) != (second[i] == nil) {
			t.Fatalf("operation %d: %v the first time, %v the second", i, first[i], second[i])
		}
		if first[i] != nil {
			failed++
		}
	}
	if failed < 60 || failed > 120 {
		t.Errorf("%d of %d operations fail", failed, len(first))
	}
}
