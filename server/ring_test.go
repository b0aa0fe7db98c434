package server

import (
	"bytes"
	"errors"
	"testing"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// peer is a client of message rings that may misbehave.
type peer struct {
	t         testing.TB
	qp        fabric.QueuePair
	responses fabric.Region
	requests  fabric.Remote
	slot      int // bytes
	depth     int
	seq       uint64
}

func dialRings(t testing.TB, answer *serverv1.ConnectResponse, batch, depth int) *peer {
	t.Helper()
	p := openFabric(t, answer.Transport)
	responses, err := p.Alloc(redywire.SlotSize(batch) * depth)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := dial(t, p, answer, redywire.Hello{Batch: batch, Depth: depth, Responses: responses.Token()})
	if err != nil {
		t.Fatal(err)
	}
	welcome, err := redywire.DecodeWelcome(qp.PeerPrivate())
	if err != nil {
		t.Fatal(err)
	}
	requests, err := qp.Import(t.Context(), welcome.Requests)
	if err != nil {
		t.Fatal(err)
	}
	return &peer{t: t, qp: qp, responses: responses, requests: requests, slot: redywire.SlotSize(batch), depth: depth}
}

// send writes message, of batch imm, into the next slot. The server may have ended the
// connection because of an earlier message.
func (p *peer) send(message []byte, imm uint32) {
	p.t.Helper()
	p.seq++
	at := int64(p.seq%uint64(p.depth)) * int64(p.slot)
	err := p.qp.WriteImm(message, p.requests, at, imm, p.seq)
	if err == nil {
		err = p.qp.Submit()
	}
	if err != nil && !errors.Is(err, fabric.ErrDisconnected) {
		p.t.Fatal(err)
	}
}

// receive waits for the response to the last batch.
func (p *peer) receive(batch int) *redywire.Reader {
	p.t.Helper()
	for {
		c := await(p.t, p.qp)
		if c.Err != nil {
			p.t.Fatal(c.Err)
		}
		if c.Op == fabric.OpRecv {
			break
		}
	}
	at := int(p.seq%uint64(p.depth)) * p.slot
	r := new(redywire.Reader)
	if err := r.Open(p.responses.Bytes()[at:at+p.slot], p.seq, batch); err != nil {
		p.t.Fatal(err)
	}
	return r
}

func TestBatches(t *testing.T) {
	s, client := newServer(t, Options{Memory: 2 * regionSize, Cores: 2, Pinning: PinAlways})
	answer := connectCache(t, client, "cache", 2, 2, 4)
	p := dialRings(t, answer, 4, 2)
	var w redywire.Writer
	buf := make([]byte, p.slot)
	for round := range 5 {
		in := bytes.Repeat([]byte{byte(round + 1)}, 100)
		w.Reset(buf)
		w.Write(1, regionSize-100, in)
		w.Read(1, regionSize-100, 100) // sees the write before it (R41)
		w.Read(1, regionSize-99, 100)  // exceeds the region
		w.Write(2, 0, in)              // no such region
		p.send(w.Seal(p.seq+1), uint32(p.seq+1))
		r := p.receive(4)
		for i, want := range []redywire.Response{
			{}, {Payload: in}, {Status: redywire.StatusOutOfBounds}, {Status: redywire.StatusNoRegion},
		} {
			got, err := r.Response()
			if err != nil || got.Status != want.Status || !bytes.Equal(got.Payload, want.Payload) {
				t.Errorf("round %d, response %d: %+v, %v; want %+v", round, i, got, err, want)
			}
		}
	}
	if m := s.Metrics(); m.Batches != 5 || m.Requests != 20 || m.Refused != 10 || m.Malformed != 0 {
		t.Errorf("metrics %+v", m)
	}
}

// A peer that violates the protocol loses only its connection.
func TestMalformedEndsConnection(t *testing.T) {
	s, client := newServer(t, Options{Memory: regionSize, Cores: 1})
	answer := connectCache(t, client, "cache", 1, 1, 4)
	healthy := dialRings(t, answer, 4, 2)
	good := func(seq uint64) []byte {
		var w redywire.Writer
		w.Reset(make([]byte, redywire.SlotSize(4)))
		w.Read(0, 0, 8)
		return w.Seal(seq)
	}
	cases := map[string]func(p *peer){
		"garbage":         func(p *peer) { p.send(bytes.Repeat([]byte{0xff}, p.slot), 1) },
		"wrong immediate": func(p *peer) { p.send(good(1), 7) },
		"wrong number":    func(p *peer) { p.send(good(2), 1) },
		"unknown op":      func(p *peer) { m := good(1); m[16] = 9; p.send(m, 1) },
		"repeated":        func(p *peer) { p.send(good(1), 1); p.send(good(1), 1) },
		// The server may answer the first of these before the last has come, and then they are good.
		"more than a ring": func(p *peer) {
			var done [4]fabric.Completion
			for p.qp.Err() == nil {
				for range 3 {
					p.seq++
					at := int64(p.seq%uint64(p.depth)) * int64(p.slot)
					if err := p.qp.WriteImm(good(p.seq), p.requests, at, uint32(p.seq), p.seq); err != nil {
						p.seq-- // the queue is full, or the connection has ended
					}
				}
				_ = p.qp.Submit() // the connection may have ended already
				p.qp.Poll(done[:])
			}
		},
	}
	ended := uint64(0)
	for name, misbehave := range cases {
		t.Run(name, func(t *testing.T) {
			p := dialRings(t, answer, 4, 2)
			misbehave(p)
			for await(t, p.qp).Err == nil {
			}
			if p.qp.Err() == nil {
				t.Error("the connection lives")
			}
		})
		ended++
	}
	t.Run("immediate to a one-sided connection", func(t *testing.T) {
		qp, err := dial(t, openFabric(t, answer.Transport), answer, redywire.Hello{Batch: 1, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		region, err := qp.Import(t.Context(), fabric.Token(answer.RegionTokens[0]))
		if err != nil {
			t.Fatal(err)
		}
		if err := qp.WriteImm([]byte{1}, region, 0, 1, 1); err != nil {
			t.Fatal(err)
		}
		_ = qp.Submit() // the connection may have ended already
		for await(t, qp).Err == nil {
		}
	})
	ended++
	healthy.send(good(1), 1)
	healthy.receive(4)
	if m := s.Metrics(); m.Malformed != ended {
		t.Errorf("%d connections ended as malformed, want %d", m.Malformed, ended)
	}
}

// A response ring that is too small is refused before anything is written.
func TestResponseRingIsChecked(t *testing.T) {
	s, client := newServer(t, Options{Memory: regionSize, Cores: 1})
	answer := connectCache(t, client, "cache", 1, 1, 4)
	p := openFabric(t, answer.Transport)
	small, err := p.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := dial(t, p, answer, redywire.Hello{Batch: 4, Depth: 2, Responses: small.Token()})
	if err != nil {
		t.Fatal(err)
	}
	if c := await(t, qp); c.Err == nil {
		t.Errorf("completion %+v", c)
	}
	if n := s.Metrics().Malformed; n != 1 {
		t.Errorf("%d malformed", n)
	}
}
