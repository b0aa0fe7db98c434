package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

const (
	// pullChunk is the size of a pull's reads, and pullDepth how many of them are
	// under way. Over tcp more than a megabyte under way falls out of the caches, a
	// quarter of the rate at 8 MiB.
	pullChunk = 256 << 10
	pullDepth = 4
	// copyChunk is the size of reads that this side copies itself: from there on a
	// copy leaves the caches to those who need them.
	copyChunk = 1 << 20
	// patience is how long a source may take for an answer. A peer that is gone
	// is noticed by the fabric, mostly; this is for the rest.
	patience = 15 * time.Second
	// reportEvery is how often a pull says how far it is.
	reportEvery = 200 * time.Millisecond
)

// sourceError is a failure of the server that a pull reads from.
type sourceError struct {
	addr string
	err  error
}

func (e *sourceError) Error() string { return fmt.Sprintf("source at %s: %v", e.addr, e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// code is the caller's mistake where it asks for what the source's region does not
// have, and the source's failure otherwise.
func (e *sourceError) code() connect.Code {
	if errors.Is(e.err, fabric.ErrOutOfBounds) {
		return connect.CodeInvalidArgument
	}
	return connect.CodeUnavailable
}

// copyAll dials the source and copies region after region.
func (p *pull) copyAll() (err error) {
	hello := redywire.Hello{Ticket: p.ticket, Batch: 1, Depth: pullDepth}
	ctx, cancel := p.patient()
	qp, err := p.provider.Dial(ctx, p.addr, hello.Encode(), pullDepth)
	cancel()
	if err != nil {
		return &sourceError{p.addr, err}
	}
	// Closed before the regions may go: until then reads may still arrive.
	defer func() { err = errors.Join(err, qp.Close()) }()
	if _, copies := qp.(fabric.Prefetcher); copies {
		p.rate.widen(copyChunk)
	}
	pages := newPages()
	defer pages.close()
	for _, r := range p.regions {
		if err := p.copyRegion(qp, r, pages); err != nil {
			return err
		}
		p.copied += int64(len(r.into))
		p.progress <- &serverv1.PullResponse{Target: r.target, Copied: uint64(len(r.into))}
	}
	return nil
}

// copyRegion copies one region, ascending.
func (p *pull) copyRegion(qp fabric.QueuePair, r pullRegion, pages *pages) error {
	ctx, cancel := p.patient()
	from, err := qp.Import(ctx, r.token)
	cancel()
	if err != nil {
		return &sourceError{p.addr, err}
	}
	defer qp.Release(from)
	if from.Size < int64(len(r.into)) {
		return &sourceError{p.addr, fmt.Errorf("%d bytes of a region of %d: %w", len(r.into), from.Size, fabric.ErrOutOfBounds)}
	}
	var done [pullDepth]fabric.Completion
	paged, asked, copied, underWay := pages.present(r.into), 0, 0, 0
	for copied < len(r.into) {
		paged = pages.ahead(r.into, asked, paged)
		for asked < len(r.into) && underWay < pullDepth && (underWay == 0 || p.rate.ready()) {
			n := min(p.rate.chunk, len(r.into)-asked)
			if err := p.rate.take(p.ctx, n); err != nil {
				return err
			}
			if err := qp.Read(r.into[asked:asked+n], from, int64(asked), 0); err != nil {
				return &sourceError{p.addr, err}
			}
			asked += n
			underWay++
		}
		if err := qp.Submit(); err != nil {
			return &sourceError{p.addr, err}
		}
		n := qp.Poll(done[:])
		for _, c := range done[:n] {
			if c.Err != nil {
				return &sourceError{p.addr, c.Err}
			}
			copied += c.N
			underWay--
			p.lease.server.counts.pulled.Add(uint64(c.N))
		}
		if copied < len(r.into) {
			p.report(r.target, copied)
		}
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if n == 0 {
			if err := p.await(qp); err != nil {
				return err
			}
		}
	}
	return p.rate.settle(p.ctx)
}

// await parks until the source has answered something.
func (p *pull) await(qp fabric.QueuePair) error {
	ctx, cancel := p.patient()
	defer cancel()
	if err := qp.Wait(ctx); err != nil {
		return &sourceError{p.addr, err}
	}
	return nil
}

// patient is the pull's context, but for no longer than a source may take.
func (p *pull) patient() (context.Context, context.CancelFunc) {
	return clock.WithAwakeTimeout(p.ctx, patience, errSilent)
}

var errSilent = fmt.Errorf("no answer for %v", patience)

// report tells the caller how far the region is, now and then, if it listens.
func (p *pull) report(target uint32, copied int) {
	now := time.Now()
	if now.Sub(p.told) < reportEvery || len(p.progress) > 0 {
		return
	}
	p.told = now
	p.progress <- &serverv1.PullResponse{Target: target, Copied: uint64(copied)}
}
