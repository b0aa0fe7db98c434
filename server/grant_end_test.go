package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
)

// held is a provider whose Alloc waits until it is released.
type held struct {
	fabric.Provider
	asked chan struct{} // receives a value when Alloc is called
	let   chan struct{} // a value, or close, releases Alloc
}

func (h held) Alloc(size int) (fabric.Region, error) {
	h.asked <- struct{}{}
	<-h.let
	return h.Provider.Alloc(size)
}

// If a client cancels Connect while its regions are set up and its cache is deallocated,
// nothing stays lent, in whichever order the server learns of the two.
func TestGivenUpConnect(t *testing.T) {
	for name, giveUp := range map[string]func(s *Server, cancel func(), let chan struct{}) error{
		"disconnected": func(s *Server, _ func(), let chan struct{}) error {
			go func() {
				for { // until Disconnect has marked the grant
					s.mu.Lock()
					over := s.grants[grantID{cache: "cache"}].over
					s.mu.Unlock()
					if over {
						close(let)
						return
					}
				}
			}()
			_, err := s.Disconnect(context.Background(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"}))
			return err
		},
		"canceled": func(_ *Server, cancel func(), let chan struct{}) error {
			cancel()
			close(let)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newServer(t, Options{Memory: regionSize, Cores: 1})
			h := held{Provider: s.provider, asked: make(chan struct{}, 1), let: make(chan struct{})}
			s.provider = h
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := s.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{Terms: &managerv1.Terms{CacheId: "cache", Regions: 1, RegionSize: regionSize, Cores: 16}}))
				ended <- err
			}()
			testrun.Receive(t, "the server asks for a ring", h.asked)
			if err := giveUp(s, cancel, h.let); err != nil {
				t.Error(err)
			}
			if err := testrun.Receive(t, "Connect ends", ended); connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("Connect: %v", err)
			}
			status, err := s.Status(context.Background(), connect.NewRequest(&serverv1.StatusRequest{}))
			if err != nil || status.Msg.FreeMemory != regionSize || len(s.grants) != 0 {
				t.Errorf("left behind: %v, %v", status, err)
			}
		})
	}
}

// A connection that opens slowly does not delay others.
func TestSlowConnection(t *testing.T) {
	s, client := newServer(t, Options{Memory: regionSize, Cores: 1})
	answer := connectCache(t, client, "cache", 1, 1, 2)
	h := held{Provider: s.provider, asked: make(chan struct{}, 2), let: make(chan struct{})} // a ring pair is two regions
	s.provider = h
	p := openFabric(t, answer.Transport)
	slow := make(chan error, 1)
	go func() {
		qp, err := dial(t, p, answer, redywire.Hello{Batch: 2, Depth: 1})
		if err == nil {
			err = qp.Close()
		}
		slow <- err
	}()
	select {
	case <-h.asked:
	case err := <-slow:
		t.Fatalf("the server asked for no ring: %v", err)
	}
	qp, err := dial(t, p, answer, redywire.Hello{Batch: 1, Depth: 1})
	close(h.let)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(qp.Close(), testrun.Receive(t, "the slow connection ends", slow)); err != nil {
		t.Error(err)
	}
}

// The server threads of all caches together do not exceed the server's cores. A cache's cores
// are free again after its Disconnect.
func TestCoresAreShared(t *testing.T) {
	_, client := newServer(t, Options{Memory: 4 * regionSize, Cores: 2})
	connectCache(t, client, "one-sided", 1, 2, 1) // takes none (A16)
	connectCache(t, client, "first", 1, 1, 4)
	two := connect.NewRequest(&serverv1.ConnectRequest{
		Terms:         &managerv1.Terms{CacheId: "second", Regions: 1, RegionSize: regionSize, Cores: 16},
		Configuration: &managerv1.Configuration{ClientThreads: 2, ServerThreads: 2, BatchSize: 4, QueueDepth: 4},
	})
	if _, err := client.Connect(t.Context(), two); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "1 of 2 cores") {
		t.Errorf("three threads on two cores: %v", err)
	}
	if _, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "first"})); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Connect(t.Context(), two); err != nil {
		t.Error(err)
	}
}

// A request that is too long is refused before all of it is read.
func TestMessagesAreBounded(t *testing.T) {
	_, client := newServer(t, Options{Memory: regionSize})
	_, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: strings.Repeat("x", 2*maxMessage)}))
	var typed *connect.Error
	if !errors.As(err, &typed) || typed.Code() != connect.CodeResourceExhausted {
		t.Errorf("a request of %d bytes: %v", 2*maxMessage, err)
	}
}
