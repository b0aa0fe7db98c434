package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
)

// footprint counts what a leak increases: goroutines, open files, mappings, and heap objects
// in hundreds.
func footprint(t *testing.T) (counts [4]int) {
	t.Helper()
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	files, err := os.ReadDir("/proc/self/fd")
	maps, merr := os.ReadFile("/proc/self/maps")
	if errors.Join(err, merr) != nil {
		t.Skip(err, merr)
	}
	return [4]int{runtime.NumGoroutine(), len(files), bytes.Count(maps, []byte("\n")), int(heap.HeapObjects / 100)}
}

// Thousands of caches connect and end in every possible way, and leave nothing behind.
func TestManyComeAndGo(t *testing.T) {
	transports := transporttest.Names(t)
	cycles := testrun.Raced(testrun.Scale(450, 1000, 10_000)/len(transports), 150)
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			s, _ := newServer(t, Options{Memory: 4 * regionSize, Cores: 2, Transport: transport})
			p := openFabric(t, transport)
			responses, err := p.Alloc(redywire.SlotSize(4) * 2)
			if err != nil {
				t.Fatal(err)
			}
			connected := 0
			comeAndGo := func(i int) {
				connected++
				id := fmt.Sprint("cache", connected)
				answer, err := s.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
					Terms: &managerv1.Terms{CacheId: id, Grant: id, Regions: 2, RegionSize: regionSize, Cores: 16}, Configuration: configuration(1, 4),
				}))
				if err != nil {
					t.Fatal(err)
				}
				hello := redywire.Hello{Batch: 1 + 3*(i%2), Depth: 2, Responses: responses.Token()}
				if i%7 == 0 {
					hello.Batch = 5 // refused
				}
				qp, err := dial(t, p, answer.Msg, hello)
				if (err != nil) != (hello.Batch == 5) {
					t.Fatal(err)
				}
				hangUp := func() {
					if qp == nil {
						return
					}
					if err := qp.Close(); err != nil {
						t.Error(err)
					}
				}
				if qp != nil && i%3 > 0 {
					if _, err := qp.Import(t.Context(), fabric.Token(answer.Msg.RegionTokens[0])); err != nil {
						t.Fatal(err)
					}
				}
				if i%5 < 3 {
					hangUp()
				}
				if _, err := s.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: id})); err != nil {
					t.Fatal(err)
				}
				hangUp()
			}
			for i := range 50 { // what is allocated once and stays
				comeAndGo(i)
			}
			before := footprint(t)
			for i := range cycles {
				comeAndGo(i)
			}
			if len(leases(t, s)) != 0 || s.Metrics().RingBytes != 0 || len(s.tickets) != 0 {
				t.Error("leases or rings stayed behind")
			}
			// The last connections may still be ending.
			deadline := time.Now().Add(testrun.Patience(time.Minute))
			for {
				after := footprint(t)
				grown := ""
				for i, what := range []string{"goroutines", "files", "mappings", "hundreds of objects"} {
					if after[i] > before[i]+20 {
						grown += fmt.Sprintf(" %d %s instead of %d", after[i], what, before[i])
					}
				}
				if grown == "" {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("after %d caches:%s", cycles, grown)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// A client that does not receive its responses delays only itself: other clients of the same
// server thread are served.
func TestSlowReader(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		t.Run(transport, func(t *testing.T) {
			_, client := newServer(t, Options{Memory: 64 << 20, Cores: 1, Transport: transport})
			answer := lend(t, client, "cache", "", 1)
			var w redywire.Writer
			buf := make([]byte, redywire.SlotSize(4))
			batch := func(p *peer) {
				w.Reset(buf)
				w.Read(0, 0, redywire.MaxPayload)
				p.send(w.Seal(p.seq+1), uint32(p.seq+1))
			}
			var slow []*peer
			for range 8 {
				p := dialRings(t, answer, 4, 2)
				batch(p)
				slow = append(slow, p)
			}
			quick := dialRings(t, answer, 4, 2)
			for range 200 {
				batch(quick)
				quick.receive(4)
			}
			for _, p := range slow { // it was answered nevertheless
				p.receive(4)
				batch(p)
				p.receive(4)
			}
		})
	}
}

// Peers that dial and then send nothing hold only memory within the limits of their grant,
// delay nobody, and end with the grant.
func TestHalfOpen(t *testing.T) {
	s, client := newServer(t, Options{Memory: 64 << 20, Cores: 1, Transport: "tcp"})
	answer := lend(t, client, "cache", "", 1)
	var silent []net.Conn
	for i := range 20 {
		c, err := net.Dial("tcp", answer.FabricAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		silent = append(silent, c)
		hello := redywire.Hello{Ticket: redywire.Ticket(answer.Ticket), Batch: 4, Depth: 2}.Encode()
		greeting := append(append([]byte("redytcp1"), byte(len(hello))), hello...)
		if i%2 == 0 {
			greeting = greeting[:len(greeting)-1-i] // less than a greeting
		}
		if _, err := c.Write(greeting); err != nil {
			t.Fatal(err)
		}
	}
	p := dialRings(t, answer, 4, 2)
	var w redywire.Writer
	w.Reset(make([]byte, p.slot))
	w.Read(0, 0, 8)
	p.send(w.Seal(1), 1)
	p.receive(4)
	if _, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"})); err != nil {
		t.Error(err)
	}
	for i, c := range silent {
		if i%2 == 0 {
			continue
		}
		if err := c.SetDeadline(time.Now().Add(testrun.Patience(30 * time.Second))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("silent peer %d: %v", i, err)
		}
	}
	checkNoRings(t, s)
}

// checkNoRings returns when no memory for rings is in use. Connections of grants that have ended give theirs
// back in their goroutines.
func checkNoRings(t *testing.T, s *Server) {
	t.Helper()
	testrun.Until(t, "all memory for rings is given back", func() bool {
		s.rings.mu.Lock()
		defer s.rings.mu.Unlock()
		return s.rings.used == 0 && s.rings.common == s.opts.RingMemory-s.rings.half
	})
}

// Rings have a budget per grant and per server, of which each grant has a part that others cannot take,
// and return what they used.
func TestRingBudget(t *testing.T) {
	const batch, depth = 64, 4
	each := ringBytes(batch, depth)
	s, client := newServer(t, Options{Memory: 64 << 20, Cores: 3, RingMemory: 102 * each}) // 17 for a core, 51 for all
	lendRinged := func(grant string) *serverv1.ConnectResponse {
		answer, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{
			Terms:         &managerv1.Terms{CacheId: "cache", Grant: grant, Regions: 1, RegionSize: regionSize, Cores: 16},
			Configuration: &managerv1.Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: batch, QueueDepth: depth},
		}))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Msg
	}
	a, b, c := lendRinged("a"), lendRinged("b"), lendRinged("c")
	p := openFabric(t, a.Transport)
	responses, err := p.Alloc(redywire.SlotSize(batch) * depth)
	if err != nil {
		t.Fatal(err)
	}
	hello := redywire.Hello{Batch: batch, Depth: depth, Responses: responses.Token()}
	fill := func(answer *serverv1.ConnectResponse) (qps []fabric.QueuePair, err error) {
		for {
			qp, err := dial(t, p, answer, hello)
			if err != nil {
				return qps, err
			}
			qps = append(qps, qp)
		}
	}
	first, err := fill(a)
	if len(first) != fewConnections || !strings.Contains(err.Error(), "the grant has") {
		t.Errorf("%d connections of the first grant: %v", len(first), err)
	}
	second, err := fill(b)
	if len(second) != 17+51-(fewConnections-17) || !strings.Contains(err.Error(), "the server has") {
		t.Errorf("%d connections of the second grant: %v", len(second), err)
	}
	third, err := fill(c)
	if len(third) != 17 || !strings.Contains(err.Error(), "the server has") {
		t.Errorf("%d connections of the third grant: %v", len(third), err)
	}
	if _, err := dial(t, p, b, redywire.Hello{Batch: 1, Depth: 1}); err != nil {
		t.Errorf("without rings: %v", err)
	}
	if err := first[0].Close(); err != nil {
		t.Error(err)
	}
	for { // until the server has noticed
		if _, err := dial(t, p, b, hello); err == nil {
			break
		}
	}
	if _, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"})); err != nil {
		t.Error(err)
	}
	checkNoRings(t, s)
}

// A region larger than all memory is refused with an error that says so.
func TestRegionLargerThanMemory(t *testing.T) {
	_, client := newServer(t, Options{Memory: 4 * regionSize})
	_, err := client.Connect(t.Context(), connect.NewRequest(&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "cache", Regions: 1, RegionSize: 1 << 40, Cores: 16}}))
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "regions of 1TiB: the server lends 256KiB in all") {
		t.Error(err)
	}
	if detail, err := detailOf(err); err != nil || detail.FreeMemory != 4*regionSize {
		t.Errorf("detail %v, %v", detail, err)
	}
}

// Lent memory is zero, whatever it held before.
func TestLentMemoryIsZero(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		t.Run(transport, func(t *testing.T) {
			s, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 1, Transport: transport})
			zero := make([]byte, regionSize)
			for i := range 5 {
				cache := fmt.Sprint("cache", i)
				lend(t, client, cache, "", 4)
				for _, region := range *s.grants[grantID{cache: cache}].memory.Load() {
					if !bytes.Equal(region, zero) {
						t.Fatalf("round %d: a region is not zero", i)
					}
					fillMarks(region)
				}
				if _, err := client.Disconnect(context.Background(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: cache})); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
