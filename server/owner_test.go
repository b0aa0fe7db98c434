package server

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
)

// When an owner connects with a new generation, all of its connections of earlier generations
// and their pending requests have ended. Connections of the same generation, of other owners
// and without an owner continue.
func TestOwnerBeginsAGeneration(t *testing.T) {
	for _, name := range transporttest.Names(t) {
		for _, batch := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s,b=%d", name, batch), func(t *testing.T) {
				s, client := newServer(t, Options{Memory: 2 * regionSize, Cores: 1, Transport: name})
				answer := connectCache(t, client, "cache", 2, 1, 4)
				p := openFabric(t, answer.Transport)
				responses, err := p.Alloc(redywire.SlotSize(batch))
				if err != nil {
					t.Fatal(err)
				}
				try := func(owner uint64, generation uint32) (fabric.QueuePair, error) {
					return dial(t, p, answer, redywire.Hello{
						Batch: batch, Depth: 1, Responses: responses.Token(), Owner: owner, Generation: generation,
					})
				}
				connection := func(owner uint64, generation uint32) fabric.QueuePair {
					t.Helper()
					qp, err := try(owner, generation)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = qp.Close() })
					return qp
				}
				stay := []fabric.QueuePair{connection(8, 0), connection(0, 0), connection(0, 1)}
				last := []fabric.QueuePair{connection(7, 0), connection(7, 0)}
				for generation := range uint32(5) {
					next := []fabric.QueuePair{connection(7, 2*generation+1), connection(7, 2*generation+1)}
					for _, qp := range last {
						for qp.Err() == nil { // Wait may return early
							if err := qp.Wait(t.Context()); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
								t.Fatal(err)
							}
						}
					}
					last = next
				}
				for _, qp := range append(stay, last...) {
					if _, err := qp.Import(t.Context(), fabric.Token(answer.RegionTokens[0])); err != nil {
						t.Error(err)
					}
				}
				if m := s.Metrics(); m.Rejected != 0 {
					t.Errorf("metrics %+v", m)
				}
				if _, err := try(7, 8); !errors.Is(err, fabric.ErrRejected) {
					t.Errorf("a generation of before: %v", err)
				}
			})
		}
	}
}

// The room that an owner's failed connection holds is available to its next connection.
func TestOwnerHasRoomForItself(t *testing.T) {
	const batch, depth = 4, 4
	_, client := newServer(t, Options{Memory: 2 * regionSize, Cores: 1, RingMemory: ringBytes(batch, depth)})
	answer := connectCache(t, client, "cache", 2, 1, batch)
	p := openFabric(t, answer.Transport)
	responses, err := p.Alloc(redywire.SlotSize(batch) * depth)
	if err != nil {
		t.Fatal(err)
	}
	hello := redywire.Hello{Batch: batch, Depth: depth, Responses: responses.Token(), Owner: 1}
	for hello.Generation < 20 {
		qp, err := dial(t, p, answer, hello)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = qp.Close() })
		other := hello
		other.Owner = 2
		if _, err := dial(t, p, answer, other); !redywire.IsNoRoom(err) {
			t.Errorf("another owner: %v", err)
		}
		hello.Generation++
	}
}
