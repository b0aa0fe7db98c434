package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/testrun"
)

// mark fills the memory of one tenant. Another tenant must not see it. It does not occur by
// chance.
var mark = []byte{0xb7, 0x5e, 0x1d, 0xc9, 0x83, 0xfa, 0x66, 0x2b}

func fillMarks(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, mark):]
	}
}

// scripted is a queue pair whose notifications the test sets, and which records the writes to
// the peer.
type scripted struct {
	fabric.QueuePair // for calls that are not expected
	announce         []fabric.Completion
	written          func(src []byte, offset int64)
}

func (q *scripted) Poll(done []fabric.Completion) int {
	n := copy(done, q.announce)
	q.announce = q.announce[n:]
	return n
}

func (q *scripted) WriteImm(src []byte, _ fabric.Remote, offset int64, _ uint32, _ uint64) error {
	q.written(src, offset)
	q.announce = append(q.announce, fabric.Completion{Op: fabric.OpWrite})
	return nil
}

func (q *scripted) Submit() error { return nil }
func (q *scripted) Err() error    { return nil }

// Whatever a peer writes into its request ring and announces, one step of the ring ends,
// answers with bytes of its own tenant only, and changes no other tenant's.
func FuzzRing(f *testing.F) {
	const batch, depth = 4, 2
	var w redywire.Writer
	w.Reset(make([]byte, redywire.SlotSize(batch)))
	w.Write(1, 3, []byte("payload"))
	w.Read(0, 100, 64)
	w.Read(2, 0, 8)
	first := w.Seal(1)
	f.Add(first, []byte{1, 2, 3}, []byte{1, 1, 2})
	w.Reset(make([]byte, redywire.SlotSize(batch)))
	w.Read(0, -1, 1<<12)
	f.Add(w.Seal(1), []byte{2, 0, 0, 1}, []byte{1})
	f.Fuzz(func(t *testing.T, message, scribbles, announced []byte) {
		provider := mem.Open()
		defer func() {
			if err := provider.Close(); err != nil {
				t.Error(err)
			}
		}()
		r, err := newRing(provider, redywire.Hello{Batch: batch, Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.bind(fabric.Remote{Size: int64(r.size())}); err != nil {
			t.Fatal(err)
		}
		// The regions of two tenants alternate in one array: only their lengths separate them.
		const size = 512
		backing := make([]byte, 6*size)
		var ours, theirs memory
		for i := range 6 {
			region := backing[i*size : (i+1)*size]
			if i%2 == 0 {
				ours = append(ours, region)
			} else {
				fillMarks(region)
				theirs = append(theirs, region)
			}
		}
		ring := r.requests.Bytes()
		for slot := range depth {
			copy(ring[slot*r.slot:(slot+1)*r.slot], message)
		}
		written := 0
		q := &scripted{written: func(src []byte, offset int64) {
			written++
			if bytes.Contains(src, mark[:4]) && !bytes.Contains(message, mark[:4]) {
				t.Fatalf("a response holds another tenant's bytes: %x", src)
			}
			if offset < 0 || offset+int64(len(src)) > int64(r.size()) {
				t.Fatalf("a response of %d bytes at %d", len(src), offset)
			}
		}}
		for i, n := range announced {
			q.announce = append(q.announce, fabric.Completion{Op: fabric.OpRecv, Imm: uint32(n)})
			if i < len(scribbles) { // another batch, or the same one with a flaw
				at := int(scribbles[i]) * 7 % len(ring)
				ring[at] ^= scribbles[i]
				seq := uint64(n)
				slot := ring[int(seq%depth)*r.slot:][:r.slot]
				binary.LittleEndian.PutUint64(slot, seq)
				redywire.Reseal(slot)
			}
			for range 3 {
				if r.err == nil {
					r.step(q, ours, new(counters), make([]fabric.Completion, 4))
				}
			}
		}
		if written > len(announced) {
			t.Fatalf("%d responses to %d batches", written, len(announced))
		}
		for _, region := range theirs {
			want := make([]byte, size)
			fillMarks(want)
			if !bytes.Equal(region, want) {
				t.Fatal("another tenant's region was written")
			}
		}
	})
}

// A hostile tenant uses random regions, offsets and sizes, torn and corrupt frames, batches
// that change while they are read, and batch numbers that repeat or are missing. It sees and
// changes no byte of the other tenant, which the server continues to serve.
func TestHostileTenant(t *testing.T) {
	for _, transport := range transporttest.Names(t) {
		t.Run(transport, func(t *testing.T) {
			s, client := newServer(t, Options{Memory: 64 << 20, Cores: 2, Transport: transport})
			hostile, victim := lend(t, client, "hostile", "", 2), lend(t, client, "victim", "", 2)
			theirs := func() memory {
				return *s.grants[grantID{cache: "victim"}].memory.Load()
			}()
			for _, region := range theirs {
				fillMarks(region)
			}
			healthy := dialRings(t, victim, 4, 2)
			rounds := testrun.Scale(300, 3000, 100000)
			rng := rand.New(rand.NewPCG(7, 7))
			h := hostilePeer{t: t, rng: rng, provider: openFabric(t, transport), answer: hostile}
			h.dial()
			for range rounds {
				h.attack()
			}
			h.hangUp()

			var w redywire.Writer
			w.Reset(make([]byte, healthy.slot))
			w.Read(1, 8, 800)
			healthy.send(w.Seal(1), 1)
			got, err := healthy.receive(4).Response()
			if want := theirs[1][8:808]; err != nil || !bytes.Equal(got.Payload, want) {
				t.Errorf("the victim reads %v, %v", got, err)
			}
			for i, region := range theirs {
				want := make([]byte, regionSize)
				fillMarks(want)
				if !bytes.Equal(region, want) {
					t.Errorf("the victim's region %d was written", i)
				}
			}
			if m := s.Metrics(); m.Malformed == 0 || m.Refused == 0 {
				t.Errorf("nothing of this was counted: %+v", m)
			}
			if _, err := client.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: "hostile"})); err != nil {
				t.Error(err)
			}
		})
	}
}

// hostilePeer sends batches that a correct client does not send.
type hostilePeer struct {
	t         *testing.T
	rng       *rand.Rand
	provider  fabric.Provider
	answer    *serverv1.ConnectResponse
	qp        fabric.QueuePair
	responses fabric.Region
	requests  fabric.Remote
	seq       uint64
	slot      int
	done      [16]fabric.Completion
	sent      [2][]byte // by slot: memory of writes that may be pending
	scribbler sync.WaitGroup
	stop      chan struct{}
}

func (h *hostilePeer) dial() {
	h.t.Helper()
	var err error
	h.slot = redywire.SlotSize(4)
	if h.responses, err = h.provider.Alloc(2 * h.slot); err != nil {
		h.t.Fatal(err)
	}
	hello := redywire.Hello{Batch: 4, Depth: 2, Responses: h.responses.Token()}
	if h.qp, err = dial(h.t, h.provider, h.answer, hello); err != nil {
		h.t.Fatal(err)
	}
	welcome, err := redywire.DecodeWelcome(h.qp.PeerPrivate())
	if err != nil {
		h.t.Fatal(err)
	}
	if h.requests, err = h.qp.Import(h.t.Context(), welcome.Requests); err != nil {
		h.t.Fatal(err)
	}
	h.seq = 0
	h.sent = [2][]byte{make([]byte, h.slot), make([]byte, h.slot)}
	h.stop = make(chan struct{})
	if h.rng.IntN(2) == 0 {
		seed := h.rng.Uint64()
		h.scribbler.Go(func() { h.scribble(welcome.Requests, rand.New(rand.NewPCG(seed, 0)), h.stop) })
	}
}

// scribble changes the request ring over another connection while the server reads it.
func (h *hostilePeer) scribble(ring fabric.Token, rng *rand.Rand, stop chan struct{}) {
	qp, err := dial(h.t, h.provider, h.answer, redywire.Hello{Batch: 1, Depth: 16})
	if err != nil {
		h.t.Error(err)
		return
	}
	defer func() {
		if err := qp.Close(); err != nil {
			h.t.Error(err)
		}
	}()
	r, err := qp.Import(h.t.Context(), ring)
	if err != nil {
		return // the server has ended the connection
	}
	var done [16]fabric.Completion
	noise := make([]byte, 8)
	for {
		select {
		case <-stop:
			return
		default:
		}
		binary.LittleEndian.PutUint64(noise, rng.Uint64())
		at := rng.Int64N(r.Size - 8)
		if rng.IntN(2) == 0 {
			at = int64(rng.IntN(2)*h.slot + 16 + rng.IntN(80)) // the entries
		}
		if qp.Write(noise[:1+rng.IntN(8)], r, at, 0) != nil || qp.Submit() != nil {
			return
		}
		for qp.Poll(done[:]) == 0 {
			if qp.Wait(h.t.Context()) != nil {
				return
			}
		}
	}
}

func (h *hostilePeer) hangUp() {
	close(h.stop)
	h.scribbler.Wait()
	if err := h.qp.Close(); err != nil {
		h.t.Error(err)
	}
	if bytes.Contains(h.responses.Bytes(), mark[:4]) {
		h.t.Error("a response held another tenant's bytes")
	}
	if err := h.responses.Close(); err != nil {
		h.t.Error(err)
	}
}

// message builds a batch with a well-formed frame.
func (h *hostilePeer) message(slot []byte, seq uint64) []byte {
	numbers := func(limits ...uint64) uint64 {
		n := limits[h.rng.IntN(len(limits))]
		return n + uint64(h.rng.IntN(5)) - 2
	}
	var w redywire.Writer
	w.Reset(slot)
	payload := redywire.MaxPayload
	for range 1 + h.rng.IntN(4) {
		n := min(int(uint16(numbers(8, 100, 1000, 4096))), payload)
		payload -= n
		region, offset := uint32(numbers(2, 0, 1<<31, 1<<32)), int64(numbers(0, regionSize, regionSize-100, 1<<63, 1<<32))
		if h.rng.IntN(4) == 0 {
			w.Write(region, offset, make([]byte, n))
		} else {
			w.Read(region, offset, n)
		}
	}
	return w.Seal(seq)
}

// attack sends one batch, possibly corrupt, and dials again if the server has ended the
// connection.
func (h *hostilePeer) attack() {
	h.t.Helper()
	if h.qp.Err() != nil {
		h.hangUp()
		h.dial()
	}
	seq := h.seq + 1
	buf := h.sent[seq%2]
	m := h.message(buf, seq)
	imm := uint32(seq)
	switch h.rng.IntN(6) {
	case 0: // a flaw at a random place
		m[h.rng.IntN(len(m))] ^= 1 << h.rng.IntN(8)
		redywire.Reseal(m)
	case 1: // torn
		m = m[:h.rng.IntN(len(m))+1]
	case 2: // a wrong number
		imm += uint32(h.rng.IntN(3)) - 1
	}
	if h.qp.WriteImm(m, h.requests, int64(seq%2)*int64(h.slot), imm, seq) != nil || h.qp.Submit() != nil {
		return
	}
	if h.rng.IntN(2) == 0 { // again, while it may be read
		_ = h.qp.Write(m[:min(len(m), 40)], h.requests, int64(seq%2)*int64(h.slot), 0)
		_ = h.qp.Submit()
	}
	h.seq = seq
	for answered := false; !answered; {
		if err := h.qp.Wait(h.t.Context()); err != nil {
			if h.t.Context().Err() != nil {
				h.t.Fatal(context.Cause(h.t.Context()))
			}
			return
		}
		for _, c := range h.done[:h.qp.Poll(h.done[:])] {
			answered = answered || c.Op == fabric.OpRecv || c.Err != nil
		}
	}
}
