package server

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
)

// A server obeys one manager at a time, and none of a lower epoch than the highest that it
// has obeyed. It accepts another one when the present one has been silent for its bound, or
// when one of a higher epoch answers its call.
func TestAllegiance(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := allegiance{now: func() time.Time { return now }}
	run := func(epoch uint64, id string) controltoken.Incarnation {
		return controltoken.Incarnation{Epoch: epoch, ID: id, Bound: time.Minute}
	}
	for i, step := range []struct {
		after   time.Duration
		who     controltoken.Incarnation
		answers bool
		obeys   bool
	}{
		{0, run(5, "a"), false, true},                 // the first one
		{30 * time.Second, run(6, "b"), false, false}, // newer, but the present one is not silent
		{30 * time.Second, run(5, "a"), false, true},
		{59 * time.Second, run(6, "b"), false, false},
		{2 * time.Second, run(6, "b"), false, true}, // the present one is silent
		{0, run(5, "a"), false, false},
		{0, run(5, "a"), true, false},
		{time.Hour, run(5, "a"), false, false}, // older, however silent the present one is
		{0, run(5, "b"), false, false},
		{0, run(5, "a"), true, false},
		{0, run(6, "c"), true, true},   // of the same epoch, while the present one is silent
		{0, run(6, "b"), true, false},  // of the same epoch, while the present one is not silent
		{0, run(7, "c"), false, false}, // newer and calls, but the present one is not silent
		{0, run(7, "e"), true, true},   // newer, and answers
		{0, run(6, "c"), true, false},
		{0, run(7, "d"), true, false},
		{0, run(7, "d"), false, false},
		{59 * time.Second, run(7, "e"), false, true}, // the present one, by its call
		{59 * time.Second, run(7, "d"), false, false},
		{2 * time.Second, run(7, "d"), false, true}, // of the same epoch: the present one is silent
		{0, run(7, "e"), false, false},
	} {
		now = now.Add(step.after)
		if err := a.hear(step.who, step.answers); (err == nil) != step.obeys {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// readingOf returns the ticket for reading of a grant's ticket; nil if that is none.
func readingOf(ticket []byte) []byte {
	if len(ticket) != redywire.TicketSize {
		return nil
	}
	reading := redywire.Ticket(ticket).Reading()
	return reading[:]
}

// TestTicketForReading: a ticket for reading admits one-sided reads beside the grant's own connections,
// and nothing else, until the grant has another ticket or ends.
func TestTicketForReading(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		t.Run(transport, func(t *testing.T) {
			s, client := newServer(t, Options{Memory: 64 << 20, Cores: 2, Transport: transport})
			answer := connectCache(t, client, "cache", 1, 1, 8)
			p := openFabric(t, transport)
			full, err := dial(t, p, answer, redywire.Hello{Batch: 1, Depth: 1})
			if err != nil {
				t.Fatal(err)
			}
			reading := &serverv1.ConnectResponse{Ticket: readingOf(answer.Ticket), FabricAddr: answer.FabricAddr}
			responses, err := p.Alloc(redywire.SlotSize(2))
			if err != nil {
				t.Fatal(err)
			}
			for name, hello := range map[string]redywire.Hello{
				"with rings":    {Batch: 2, Depth: 1, Responses: responses.Token()},
				"with an owner": {Batch: 1, Depth: 1, Owner: 7, Generation: 9},
			} {
				if qp, err := dial(t, p, reading, hello); !errors.Is(err, fabric.ErrRejected) {
					t.Errorf("a connection %s: %v, %v", name, qp, err)
				}
			}
			qp, err := dial(t, p, reading, redywire.Hello{Batch: 1, Depth: 1})
			if err != nil {
				t.Fatal(err)
			}
			token := fabric.Token(answer.RegionTokens[0])
			do := func(q fabric.QueuePair, act func(fabric.Remote) error) error {
				t.Helper()
				r, err := q.Import(t.Context(), token)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(act(r), q.Submit()); err != nil {
					return err // a write without the right to it may end the connection
				}
				return await(t, q).Err
			}
			if err := do(full, func(r fabric.Remote) error { return full.Write([]byte("bytes"), r, 0, 1) }); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 5)
			if err := do(qp, func(r fabric.Remote) error { return qp.Read(got, r, 0, 1) }); err != nil || string(got) != "bytes" {
				t.Errorf("a read: %q, %v", got, err)
			}
			if err := do(qp, func(r fabric.Remote) error { return qp.Write([]byte("other"), r, 0, 1) }); err == nil {
				t.Error("a write succeeded")
			}
			if err := do(full, func(r fabric.Remote) error { return full.Read(got, r, 0, 1) }); err != nil || string(got) != "bytes" {
				t.Errorf("the region holds %q, %v", got, err)
			}
			if err := errors.Join(qp.Close(), full.Close()); err != nil {
				t.Error(err)
			}
			if _, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "cache"})); err != nil {
				t.Fatal(err)
			}
			if qp, err := dial(t, p, reading, redywire.Hello{Batch: 1, Depth: 1}); !errors.Is(err, fabric.ErrRejected) {
				t.Errorf("after the grant's end: %v, %v", qp, err)
			}
			if len(s.tickets) != 0 {
				t.Errorf("%d tickets are left", len(s.tickets))
			}
		})
	}
}
