package server

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/redywire"
)

// stepBatches bounds the batches that one step executes for a connection, so that all
// connections get their turn.
const stepBatches = 4

// ring is the server's side of a connection's two message rings.
//
//	answered ≤ carried < announced + 1
//
// Batches up to announced have arrived, those up to carried are executed and their responses
// given to the queue pair, and the writes of the responses up to answered are complete.
// Response n lies in slot n mod depth of staging until then.
type ring struct {
	batch, depth   int
	slot           int           // bytes
	requests       fabric.Region // the client writes here
	staging        fabric.Region // responses on their way to the client
	responsesToken fabric.Token
	responses      fabric.Remote // the client's ring

	announced, carried, answered uint64
	err                          error // why the connection has to end
}

func newRing(p fabric.Provider, hello redywire.Hello) (*ring, error) {
	r := &ring{
		batch: hello.Batch, depth: hello.Depth,
		slot:           redywire.SlotSize(hello.Batch),
		responsesToken: hello.Responses,
	}
	var err error
	if r.requests, err = p.Alloc(r.size()); err != nil {
		return nil, fmt.Errorf("request ring: %w", err)
	}
	if r.staging, err = p.Alloc(r.size()); err != nil {
		return nil, errors.Join(fmt.Errorf("response staging: %w", err), r.requests.Close())
	}
	return r, nil
}

func (r *ring) size() int { return r.slot * r.depth }

// ringBytes is the server's memory for a connection's rings.
func ringBytes(batch, depth int) int64 {
	if batch <= 1 {
		return 0
	}
	return 2 * int64(redywire.SlotSize(batch)) * int64(depth)
}

func (r *ring) close() error { return errors.Join(r.requests.Close(), r.staging.Close()) }

// bind sets where responses go.
func (r *ring) bind(responses fabric.Remote) error {
	if responses.Size < int64(r.size()) {
		return fmt.Errorf("%w: response ring of %d bytes, want %d", redywire.ErrMalformed, responses.Size, r.size())
	}
	r.responses = responses
	return nil
}

// step polls qp, executes a few batches, sends their responses, and reports whether there
// was work. After an error it sets r.err and must not be called again.
func (r *ring) step(qp fabric.QueuePair, m memory, counts *counters, done []fabric.Completion) bool {
	n := qp.Poll(done)
	for _, c := range done[:n] {
		if r.err = r.take(c); r.err != nil {
			return true
		}
	}
	if n == 0 {
		if r.err = qp.Err(); r.err != nil {
			return true
		}
	}
	sent := 0
	// A response slot is written again only after its last write is complete.
	for r.carried < r.announced && r.carried-r.answered < uint64(r.depth) && sent < stepBatches {
		if r.err = r.carryOut(qp, m, counts); r.err != nil {
			return true
		}
		sent++
	}
	if sent > 0 {
		r.err = qp.Submit()
	}
	return n+sent > 0
}

func (r *ring) take(c fabric.Completion) error {
	if c.Err != nil {
		return c.Err
	}
	if c.Op != fabric.OpRecv {
		r.answered++
		return nil
	}
	r.announced++
	if c.Imm != uint32(r.announced) || r.announced-r.carried > uint64(r.depth) {
		return fmt.Errorf("%w: batch %d announced instead of %d, %d pending",
			redywire.ErrMalformed, c.Imm, uint32(r.announced), r.announced-1-r.carried)
	}
	return nil
}

// job is a checked request with the memory that it names.
type job struct {
	memory  []byte
	payload []byte // of a write
	status  redywire.Status
	write   bool
}

// carryOut executes the next batch in order (R39, R41) and enqueues its response. The memory
// of many requests is prefetched before it is used: loading it dominates a batch's cost.
func (r *ring) carryOut(qp fabric.QueuePair, m memory, counts *counters) error {
	seq := r.carried + 1
	at := int(seq%uint64(r.depth)) * r.slot
	var in redywire.Reader
	if err := in.Open(r.requests.Bytes()[at:at+r.slot], seq, r.batch); err != nil {
		return err
	}
	var out redywire.Writer
	out.Reset(r.staging.Bytes()[at : at+r.slot])
	refused := 0
	var jobs [core.Ahead]job
	for in.More() {
		n := 0
		for ; n < len(jobs) && in.More(); n++ {
			q, err := in.Request()
			if err != nil {
				return err
			}
			j := &jobs[n]
			j.status, j.memory = m.find(q)
			j.payload, j.write = q.Payload, q.Op == redywire.OpWrite
			core.Touch(j.memory, 0, len(j.memory))
		}
		for i := range jobs[:n] {
			j := &jobs[i]
			switch {
			case j.status != redywire.StatusOK:
				refused++
				out.Respond(j.status, nil)
			case j.write:
				copy(j.memory, j.payload)
				out.Respond(j.status, nil)
			default:
				out.Respond(j.status, j.memory)
			}
		}
	}
	counts.batches.Add(1)
	counts.requests.Add(uint64(out.Count()))
	if refused > 0 {
		counts.refused.Add(uint64(refused))
	}
	r.carried = seq
	return qp.WriteImm(out.Seal(seq), r.responses, int64(at), uint32(seq), seq)
}

// find returns the bytes that a request names.
func (m memory) find(q redywire.Request) (redywire.Status, []byte) {
	if uint64(q.Region) >= uint64(len(m)) {
		return redywire.StatusNoRegion, nil
	}
	region := m[q.Region]
	if q.Offset > uint64(len(region)) || uint64(q.N) > uint64(len(region))-q.Offset {
		return redywire.StatusOutOfBounds, nil
	}
	return redywire.StatusOK, region[q.Offset : q.Offset+uint64(q.N)]
}
