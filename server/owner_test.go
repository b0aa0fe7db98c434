package server

import (
	"errors"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/redywire"
)

// An owner that connects again finds its earlier connection ended, whatever that
// had under way; other owners' and nobody's go on.
func TestOwnerHasOneConnection(t *testing.T) {
	for _, name := range transport.Usable() {
		t.Run(name, func(t *testing.T) {
			s, client := newServer(t, Options{Memory: 2 * regionSize, Transport: name})
			answer := connectCache(t, client, "cache", 2, 0, 1)
			p := openFabric(t, answer.Transport)
			connection := func(owner uint64) fabric.QueuePair {
				t.Helper()
				qp, err := dial(t, p, answer, redywire.Hello{Batch: 1, Depth: 1, Owner: owner})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = qp.Close() })
				return qp
			}
			other, nobody := connection(8), connection(0)
			last := connection(7)
			for range 5 {
				next := connection(7)
				for last.Err() == nil { // Wait may return sooner
					if err := last.Wait(t.Context()); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
						t.Fatal(err)
					}
				}
				last = next
			}
			for _, qp := range []fabric.QueuePair{other, nobody, last} {
				if _, err := qp.Import(t.Context(), fabric.Token(answer.RegionTokens[0])); err != nil {
					t.Error(err)
				}
			}
			if m := s.Metrics(); m.Rejected != 0 {
				t.Errorf("metrics %+v", m)
			}
		})
	}
}
