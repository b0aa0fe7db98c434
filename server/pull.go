package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
)

// Limits of pulls.
const (
	maxPulls       = 16   // of one grant that copy at a time
	maxPullCalls   = 2048 // of one grant, with those that wait or prepare
	maxPullRegions = 1024 // of one call
)

// Causes of a pull's end other than a failure or its caller.
var (
	errReleased = errors.New("the region was released")
	errEnded    = errors.New("the grant has ended")
	errTaken    = errors.New("another client has taken the cache up")
)

// Pull copies regions of another server into a grant's regions by one-sided reads (R77,
// A43), in the order of the request, each from begin to end, no faster than the request
// allows. It reports progress, and each region when it is copied. Reads and writes of both
// sides continue meanwhile: the caller ensures that the source does not change. Of one grant's
// pulls 16 copy at a time, and the others wait for their turns.
//
// A call that only prepares waits until the targets' memory is ready, so that a copy which others
// wait for takes no longer than it must. It does not change a byte.
//
// Copied bytes stay, and the others are as before, however the call ends:
//
//	nil                 every region is copied
//	Unavailable         the source failed, cannot be reached or does not lend these
//	                    regions; the message names its address. If connect.IsWireError
//	                    is false, this server could not be reached
//	Aborted             the grant ended, one of its regions was released, or another
//	                    client has taken the cache up
//	NotFound            the grant is not lent here
//	PermissionDenied    the ticket is not the grant's, or the manager has not signed the source
//	ResourceExhausted   2048 pulls of the grant are under way or wait
//	InvalidArgument     a region or a size that the grant or the source does not
//	                    have, or a network that cannot be parsed
//	Canceled and DeadlineExceeded: the call's context ended
//	Internal            this server failed
func (s *Server) Pull(ctx context.Context, req *connect.Request[serverv1.PullRequest], stream *connect.ServerStream[serverv1.PullResponse]) error {
	m := req.Msg
	g, err := s.find(grantID{m.CacheId, m.Grant}, m.Ticket)
	if err != nil {
		return err
	}
	if err := s.checkSource(m); err != nil {
		return err
	}
	network := fabric.Network{}
	if m.Net != "" {
		if network, err = fabric.ParseNetwork(m.Net); err != nil {
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	p, err := g.newPull(ctx, m)
	if err != nil {
		return err
	}
	p.provider = s.modelled(network.At(1))
	work := p.copyInTurn
	if m.Prepare {
		work = p.prepare
	}
	go p.run(work)
	for r := range p.progress {
		if err := stream.Send(r); err != nil {
			p.cancel(err)
			return err
		}
	}
	if p.err != nil {
		level := slog.LevelWarn
		if ctx.Err() != nil { // the client does not want it any more
			level = slog.LevelInfo
		}
		s.opts.Logger.Log(ctx, level, "pull failed", "cache", m.CacheId, "grant", m.Grant, "source", m.FabricAddr, "err", p.err)
		return p.status()
	}
	if m.Prepare {
		return nil
	}
	s.opts.Logger.Info("regions pulled", "cache", m.CacheId, "grant", m.Grant, "source", m.FabricAddr,
		"regions", len(m.Regions), "bytes", units.Size(p.copied).String())
	return nil
}

// modelled returns the fabric behind the network model m. Pulls of one network share its
// bandwidth as long as no other network is used.
func (s *Server) modelled(m fabric.Model) fabric.Provider {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.networked == nil || s.network != m {
		s.networked, s.network = fabric.WithModel(s.provider, m), m
	}
	return s.networked
}

// pull is one call of Pull, owned by its goroutine (run) unless stated otherwise. The grant's
// regions up to reaches stay until over is closed.
type pull struct {
	grant    *grant
	holder   uint64          // who called
	provider fabric.Provider // behind the modelled network
	addr     string          // of the source
	ticket   redywire.Ticket // of the source
	regions  []pullRegion
	reaches  int // the highest region
	rate     throttle
	buffers  []byte // of reads, if the server is sparse

	ctx    context.Context // ends with the call, the grant, or a region
	cancel context.CancelCauseFunc

	// progress has room for each region's end and one report, so that a caller that does
	// not receive delays nothing. It is closed at the end.
	progress chan *serverv1.PullResponse
	reported time.Time // last progress report
	copied   int64
	err      error         // set before progress is closed
	over     chan struct{} // closed when the pull has stopped accessing regions
}

// pullRegion is one region to copy.
type pullRegion struct {
	token  fabric.Token // at the source
	target uint32
	into   []byte        // its memory here, of as many bytes as are copied
	region fabric.Region // that has the memory
}

// newPull checks m and registers the pull. The caller calls run.
func (g *grant) newPull(ctx context.Context, m *serverv1.PullRequest) (*pull, error) {
	p := &pull{
		grant: g, addr: m.FabricAddr, rate: newThrottle(m.BytesPerSecond),
		progress: make(chan *serverv1.PullResponse, len(m.Regions)+1), over: make(chan struct{}),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		return nil, ended(g.id)
	}
	if redywire.Ticket(m.Ticket) != g.ticket {
		return nil, taken(g.id) // since find
	}
	if len(g.pulls) == maxPullCalls {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%v: %d pulls are under way or wait", g.id, maxPullCalls))
	}
	p.holder = g.holder
	if err := p.plan(m, *g.memory.Load(), g.regions); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%v: %w", g.id, err))
	}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	g.pulls[p] = struct{}{}
	g.running.Add(1)
	return p, nil
}

// plan checks m and sets the pull's regions.
func (p *pull) plan(m *serverv1.PullRequest, memory memory, regions []fabric.Region) error {
	if len(m.SourceTicket) != redywire.TicketSize {
		return fmt.Errorf("source ticket of %d bytes, want %d", len(m.SourceTicket), redywire.TicketSize)
	}
	p.ticket = redywire.Ticket(m.SourceTicket)
	if len(m.Regions) > maxPullRegions {
		return fmt.Errorf("%d regions in one call, want at most %d", len(m.Regions), maxPullRegions)
	}
	for i, r := range m.Regions {
		switch {
		case len(r.SourceToken) != len(fabric.Token{}):
			return fmt.Errorf("source token %d has %d bytes, want %d", i, len(r.SourceToken), len(fabric.Token{}))
		case uint64(r.Target) >= uint64(len(memory)):
			return fmt.Errorf("target region %d, the grant has %d", r.Target, len(memory))
		case r.Bytes > uint64(len(memory[r.Target])):
			return fmt.Errorf("%d bytes for region %d, which has %d", r.Bytes, r.Target, len(memory[r.Target]))
		}
		p.regions = append(p.regions, pullRegion{
			token: fabric.Token(r.SourceToken), target: r.Target, into: memory[r.Target][:r.Bytes:r.Bytes], region: regions[r.Target],
		})
		p.reaches = max(p.reaches, int(r.Target))
	}
	return nil
}

// run copies or prepares the regions, and unregisters the pull when it accesses none any more.
func (p *pull) run(work func() error) {
	g := p.grant
	stop := context.AfterFunc(g.ctx, func() { p.cancel(errEnded) })
	p.err = work()
	stop()
	if p.err != nil && p.ctx.Err() != nil {
		p.err = context.Cause(p.ctx) // the reason for the other error
	}
	p.cancel(nil)
	close(p.progress)
	g.mu.Lock()
	delete(g.pulls, p)
	g.mu.Unlock()
	close(p.over)
	g.running.Done()
}

// status returns the pull's error for the caller.
func (p *pull) status() error {
	var source *sourceError
	switch {
	case errors.Is(p.err, errReleased) || errors.Is(p.err, errEnded) || errors.Is(p.err, errTaken):
		return connect.NewError(connect.CodeAborted, fmt.Errorf("%v: %w", p.grant.id, p.err))
	case errors.As(p.err, &source):
		return connect.NewError(source.code(), fmt.Errorf("%v: %w", p.grant.id, p.err))
	case errors.Is(p.err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, p.err)
	case p.ctx.Err() != nil && errors.Is(p.err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, p.err)
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("%v: %w", p.grant.id, p.err))
}

const (
	// pullChunk is the size of a pull's reads, and pullDepth the number of pending ones.
	// Over tcp more than a pending megabyte exceeds the processor's caches: 8 MiB give a
	// quarter of the rate.
	pullChunk = 256 << 10
	pullDepth = 4
	// copyChunk is the size of reads that this processor copies itself: copies of this size
	// bypass the processor's caches.
	copyChunk = 1 << 20
	// sourceTimeout bounds the wait for a source's answer. The fabric mostly notices a
	// lost peer itself.
	sourceTimeout = 15 * time.Second
	// reportEvery is the interval of progress reports.
	reportEvery = 200 * time.Millisecond
)

// sourceError is a failure of the server that a pull reads from.
type sourceError struct {
	addr string
	err  error
}

func (e *sourceError) Error() string { return fmt.Sprintf("source at %s: %v", e.addr, e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// code is InvalidArgument if the request exceeds the source's region, and Unavailable
// otherwise.
func (e *sourceError) code() connect.Code {
	if errors.Is(e.err, fabric.ErrOutOfBounds) {
		return connect.CodeInvalidArgument
	}
	return connect.CodeUnavailable
}

// prepare waits until the regions' memory is ready.
func (p *pull) prepare() error {
	for _, r := range p.regions {
		if region, ok := r.region.(fabric.Preparing); ok {
			region.Ready(p.ctx)
		}
	}
	return p.ctx.Err()
}

// copyInTurn copies the regions when fewer than maxPulls pulls of the grant copy.
func (p *pull) copyInTurn() error {
	select {
	case p.grant.copying <- struct{}{}:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	defer func() { <-p.grant.copying }()
	return p.copyAll()
}

// copyAll dials the source and copies one region after the other.
func (p *pull) copyAll() (err error) {
	hello := redywire.Hello{Ticket: p.ticket, Batch: 1, Depth: pullDepth}
	ctx, cancel := p.sourceContext()
	qp, err := p.provider.Dial(ctx, p.addr, hello.Encode(), pullDepth)
	cancel()
	if err != nil {
		return &sourceError{p.addr, err}
	}
	// Closed before the regions may be freed: until then reads may still arrive.
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

// await blocks until the source has answered a read.
func (p *pull) await(qp fabric.QueuePair) error {
	ctx, cancel := p.sourceContext()
	defer cancel()
	if err := qp.Wait(ctx); err != nil {
		return &sourceError{p.addr, err}
	}
	return nil
}

// sourceContext is the pull's context with the timeout of one answer.
func (p *pull) sourceContext() (context.Context, context.CancelFunc) {
	return clock.WithAwakeTimeout(p.ctx, sourceTimeout, errSilent)
}

var errSilent = fmt.Errorf("no answer for %v", sourceTimeout)

// report sends the progress of a region, at most once per reportEvery, if the caller
// receives it.
func (p *pull) report(target uint32, copied int) {
	now := time.Now()
	if now.Sub(p.reported) < reportEvery || len(p.progress) > 0 {
		return
	}
	p.reported = now
	p.progress <- &serverv1.PullResponse{Target: target, Copied: uint64(copied)}
}
