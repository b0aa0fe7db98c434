package server

import (
	"errors"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
)

// A region is reached over connections of its own grant only, also by a peer that knows its token and has a
// connection with more rights to another grant.
func TestTokensAreOfOneGrant(t *testing.T) {
	for _, name := range transporttest.Names(t) {
		t.Run(name, func(t *testing.T) {
			_, client := newServer(t, Options{Memory: 2 * regionSize, Cores: 2, Transport: name})
			read, own := connectCache(t, client, "read", 1, 1, 1), connectCache(t, client, "own", 1, 1, 4)
			p := openFabric(t, name)
			open := func(ticket redywire.Ticket, batch int) fabric.QueuePair {
				t.Helper()
				responses, err := p.Alloc(redywire.SlotSize(4))
				if err != nil {
					t.Fatal(err)
				}
				hello := redywire.Hello{Ticket: ticket, Batch: batch, Depth: 1, Responses: responses.Token()}
				qp, err := p.Dial(t.Context(), own.FabricAddr, hello.Encode(), 4)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = qp.Close() })
				return qp
			}
			reading := open(redywire.Ticket(read.Ticket).Reading(), 1)
			for what, qp := range map[string]fabric.QueuePair{
				"one-sided": open(redywire.Ticket(own.Ticket), 1), "with rings": open(redywire.Ticket(own.Ticket), 4),
			} {
				if _, err := qp.Import(t.Context(), fabric.Token(read.RegionTokens[0])); !errors.Is(err, fabric.ErrBadToken) {
					t.Errorf("%s: another grant's region: %v", what, err)
				}
				if _, err := qp.Import(t.Context(), fabric.Token(own.RegionTokens[0])); err != nil {
					t.Errorf("%s: its own region: %v", what, err)
				}
			}
			if _, err := reading.Import(t.Context(), fabric.Token(own.RegionTokens[0])); !errors.Is(err, fabric.ErrBadToken) {
				t.Errorf("another grant's region, for reading: %v", err)
			}
			if _, err := reading.Import(t.Context(), fabric.Token(read.RegionTokens[0])); err != nil {
				t.Errorf("its own region, for reading: %v", err)
			}
		})
	}
}
