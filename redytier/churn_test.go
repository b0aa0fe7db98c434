package redytier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/redykv/redykv/internal/fabric/fabrictest"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
)

// churnRounds is the number of rounds of a churn test over a transport.
func churnRounds(transport string) int {
	switch {
	case machine.RaceDetector:
		return 200
	case transport == "tcp":
		return testrun.Scale(200, 1000, 2_000)
	}
	return testrun.Scale(200, 1000, 10_000)
}

// churn runs the rounds of a transport after some warm-up rounds, and checks for leaks. Each round
// may keep some bytes.
func churn(t *testing.T, transport string, first, kept int, round func(i int)) {
	for i := range first {
		round(i)
	}
	rounds, before := churnRounds(transport), fabrictest.MeasureLeft()
	for i := range rounds {
		round(i)
	}
	before.CheckLeft(t, rounds, kept)
}

// Sessions are opened and closed, with and without pending requests, and leave nothing at
// either end: no memory, region, descriptor or goroutine.
func TestSessionChurn(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		for what, configuration := range map[string]Configuration{"one-sided": configurations[0], "batches": configurations[1]} {
			t.Run(fmt.Sprintf("%s %s", transport, what), func(t *testing.T) {
				c := newCluster(t, transport, 2, 1<<20)
				cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: configuration})
				round := func(i int) {
					s, err := cache.NewSession(4)
					if err != nil {
						t.Fatal(err)
					}
					if i%4 != 0 { // every fourth session stays unused
						src, dst := make([]byte, 100), make([]byte, 100)
						err = errors.Join(s.Write(src, 0, 1), s.Read(dst, 1<<15, 2), s.Submit())
					}
					if i%4 == 1 { // otherwise the requests are pending at Close
						err = errors.Join(err, s.Wait(t.Context()))
					}
					if err = errors.Join(err, s.Close()); err != nil {
						t.Fatal(err)
					}
				}
				churn(t, transport, 100, 0, round)
				if m := cache.Metrics(); m.Sessions != 1 || m.Errors != 0 { // the client thread's session
					t.Errorf("%+v", m)
				}
				if err := cache.Delete(t.Context()); err != nil {
					t.Error(err)
				}
				c.nothingLeft(t)
			})
		}
	}
}

// rememberedBytes bounds what a manager remembers of an ended cache for some minutes, to answer a
// late Allocate, with its record in memory.
const rememberedBytes = 640

// Caches are created and deleted and leave nothing in the client, the server or the manager but
// rememberedBytes.
func TestCacheChurn(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		t.Run(transport, func(t *testing.T) {
			vms, err := allocator.NewInProcess(allocator.InProcessOptions{Transport: transport, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			m := manageVMs(t, vms, transport, 0, 0)
			node := m.announceOver(t, transport, managedRegions)
			round := func(i int) {
				cache, err := Create(t.Context(), m, Config{
					Capacity: managedRegions * managedRegion, RegionSize: managedRegion, Transport: transport,
					Configuration: configurations[i%2], Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				if i%3 == 0 {
					called := make(chan error, 1)
					err = cache.Write(t.Context(), make([]byte, 100), 0, func(_ int, err error) { called <- err })
					if err == nil {
						err = testrun.Receive(t, "the write ends", called)
					}
				}
				if err = errors.Join(err, cache.Delete(context.Background())); err != nil {
					t.Fatal(err)
				}
			}
			churn(t, transport, 50, rememberedBytes, round)
			if vm := node.VM(); vm.Free != vm.Memory {
				t.Errorf("%d of %d bytes free at the server", vm.Free, vm.Memory)
			}
			if r := m.known(t); len(r.GetCaches()) != 0 {
				t.Errorf("%d caches at the manager", len(r.GetCaches()))
			}
		})
	}
}
