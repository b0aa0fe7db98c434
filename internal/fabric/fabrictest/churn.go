package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/testrun"
)

// RunChurn opens and closes thousands of connections, in every order of closing, and checks
// that memory, mappings, descriptors and goroutines are released. The race detector has fewer
// rounds.
func RunChurn(t *testing.T, open Open) {
	rounds := testrun.Scale(500, 1000, 10_000)
	if machine.RaceDetector {
		rounds = 500
	}
	server, client := open(), open()
	t.Cleanup(func() { check(t, errors.Join(client.Close(), server.Close())) })
	l, err := server.Listen("", 16)
	check(t, err)
	c := churn{t: t, server: server, client: client, listener: l, accepted: make(chan accepted)}
	for i := range 100 {
		c.round(i)
	}
	before := MeasureLeft()
	for i := range rounds {
		c.round(i)
	}
	before.CheckLeft(t, rounds, 0)
}

// churn is a pair of hosts that connect repeatedly.
type churn struct {
	t              *testing.T
	server, client fabric.Provider
	listener       fabric.Listener
	accepted       chan accepted
}

type accepted struct {
	q   fabric.QueuePair
	err error
}

// round opens a connection, uses it, and closes it in the order that i selects.
func (c *churn) round(i int) {
	t := c.t
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	refuse := i%8 == 7
	go func() {
		r, err := c.listener.Accept(ctx)
		if err == nil && refuse {
			err = r.Reject("no room")
		}
		var q fabric.QueuePair
		if err == nil && !refuse {
			q, err = r.Accept([]byte("welcome"), fabric.ReadWrite)
		}
		c.accepted <- accepted{q, err}
	}()
	here, err := c.client.Dial(ctx, c.listener.Addr(), []byte("hello"), 16)
	there := <-c.accepted
	check(t, there.err)
	if refuse {
		if !errors.Is(err, fabric.ErrRejected) {
			t.Fatalf("dial: %v", err)
		}
		return
	}
	check(t, err)
	region, err := c.server.Alloc(4096)
	check(t, err)
	r, err := here.Import(ctx, region.Token())
	check(t, err)
	check(t, errors.Join(here.WriteImm([]byte("x"), r, 0, 1, 1), here.Read(make([]byte, 8), r, 0, 2), here.Submit()))
	if i%2 == 0 { // otherwise operations are pending at the end
		var done [2]fabric.Completion
		for seen := 0; seen < 2; {
			check(t, here.Wait(ctx))
			seen += here.Poll(done[:])
		}
	}
	ends := []func() error{here.Close, there.q.Close, region.Close}
	for k := range ends {
		check(t, ends[(i+k)%len(ends)]())
	}
}

// Left counts the resources that connections may leak.
type Left struct {
	goroutines, descriptors, mappings int
	heap                              uint64
}

// MeasureLeft counts the resources of this process. Nothing else may run meanwhile.
func MeasureLeft() Left {
	for range 3 {
		runtime.GC() // pools and finalizers need several cycles
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	maps, err2 := os.ReadFile("/proc/self/maps")
	if err := errors.Join(err, err2); err != nil {
		panic(fmt.Sprintf("no /proc: %v", err))
	}
	return Left{
		goroutines: runtime.NumGoroutine(), descriptors: len(fds),
		mappings: strings.Count(string(maps), "\n"), heap: m.HeapAlloc,
	}
}

// CheckLeft fails the test if resources leaked during that many rounds, of which each may keep
// some bytes. It retries for a while, because goroutines of the last connections may take time
// to end on a busy machine.
func (before Left) CheckLeft(t *testing.T, rounds, kept int) {
	t.Helper()
	after := MeasureLeft()
	for ended := time.After(patience); after.above(before, rounds, kept); after = MeasureLeft() {
		select {
		case <-ended:
			t.Errorf("after %d rounds %+v, before them %+v", rounds, after, before)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// above reports whether more resources are in use than before, allowing for noise.
func (after Left) above(before Left, rounds, kept int) bool {
	const (
		few  = 20 // noise; a leak in every round would exceed it
		each = 32 // bytes per round: less than any leaked object
	)
	return after.goroutines > before.goroutines+few || after.descriptors > before.descriptors+few || after.mappings > before.mappings+few ||
		int64(after.heap)-int64(before.heap) > int64(rounds)*int64(each+kept)+1<<18
}
