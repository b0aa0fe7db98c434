package core

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/internal/mem"
)

// All huge pages of all regions are populated, once, by several goroutines; those of a region
// that has ended, or cannot be populated, are not.
func TestPreparer(t *testing.T) {
	if mem.Available() == 0 {
		t.Skip("the memory that is left is unknown")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // for two workers
	const pieces = 4
	var bytes atomic.Int64
	hold, held, once := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	p := Preparer{Populate: func(b []byte) bool {
		if b[0] == 1 {
			return false
		}
		bytes.Add(int64(len(b)))
		select {
		case once <- struct{}{}: // the first two pieces
			held <- struct{}{}
			<-hold
		default:
		}
		return true
	}}
	memory := make([]byte, pieces*PreparePiece+mem.HugePage+12345)
	var a, b, small, refused, huge Preparation
	p.Prepare(&small, memory[:mem.HugePage-1])
	p.Prepare(&a, memory)
	p.Prepare(&b, memory)
	<-held
	<-held // two goroutines prepare at the same time
	p.mu.Lock()
	waiting := p.waiting
	p.mu.Unlock()
	if want := int64(2*(pieces*PreparePiece+mem.HugePage) - 2*PreparePiece); waiting != want {
		t.Errorf("%d bytes wait, want %d", waiting, want)
	}
	ended := make(chan struct{})
	go func() {
		p.End(&b)
		close(ended)
	}()
	for p.mu.Lock(); len(p.pieces) > pieces; p.mu.Lock() { // those of b are dropped
		p.mu.Unlock()
	}
	p.mu.Unlock()
	close(hold)
	<-ended
	no := make([]byte, 2*PreparePiece)
	no[0], no[PreparePiece] = 1, 1
	p.Prepare(&refused, no)
	for p.mu.Lock(); p.workers > 0; p.mu.Lock() {
		p.mu.Unlock()
	}
	p.mu.Unlock()
	if n, want := bytes.Load(), int64(pieces*PreparePiece+mem.HugePage); n != want {
		t.Errorf("%d bytes populated, want %d", n, want)
	}
	p.waiting = mem.Total() // as if that much waited already
	p.Prepare(&huge, memory)
	if len(p.pieces) > 0 {
		t.Error("more memory is prepared than the machine can spare")
	}
	p.Close()
}

// Ready waits for the pieces of one region, which come before those of others, and no longer than
// its context.
func TestPreparerReady(t *testing.T) {
	if mem.Available() == 0 {
		t.Skip("the memory that is left is unknown")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // for two workers
	var order []byte                                // regions of pieces, in the order in which the last worker populates them
	hold, last := make(chan struct{}), make(chan struct{})
	p := Preparer{Populate: func(b []byte) bool {
		switch b[0] {
		case 'h':
			<-hold
		case 'l':
			<-last
		default:
			order = append(order, b[0])
		}
		return true
	}}
	var one, other, a, b, c, none Preparation
	prepare := func(of *Preparation, region byte, pieces int) {
		memory := make([]byte, pieces*PreparePiece)
		for i := range pieces {
			memory[i*PreparePiece] = region
		}
		p.Prepare(of, memory)
	}
	prepare(&one, 'h', 1)
	prepare(&other, 'l', 1)
	for p.mu.Lock(); len(p.pieces) > 0; p.mu.Lock() { // all workers are busy
		p.mu.Unlock()
	}
	p.mu.Unlock()
	prepare(&a, 'a', 2)
	prepare(&b, 'b', 2)
	prepare(&c, 'c', 2)
	ended, end := context.WithCancel(t.Context())
	end()
	p.Ready(ended, &b)
	p.Ready(t.Context(), &none)
	var waiting sync.WaitGroup
	waiting.Go(func() { p.Ready(t.Context(), &c) })
	for p.mu.Lock(); p.pieces[0].of != &c; p.mu.Lock() { // before the last worker takes one
		p.mu.Unlock()
	}
	p.mu.Unlock()
	close(last)
	waiting.Wait()
	p.Ready(t.Context(), &b) // before that of a, which would move those of a to the front
	p.Ready(t.Context(), &a)
	close(hold) // nothing is left for the first worker, which would append to order at the same time
	p.Close()
	if got := string(order); got != "ccbbaa" {
		t.Errorf("pieces of regions %s are populated, want ccbbaa", got)
	}
}
