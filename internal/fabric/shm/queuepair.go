//go:build linux

package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

const (
	protReadWrite = unix.PROT_READ | unix.PROT_WRITE
	// spins is how often Wait checks before it parks. The peer is another process; two that
	// spin on busy processors slow each other down.
	spins = 32
)

// queuePair is one end of a connection. The owner executes its operations; a goroutine reads
// the control socket. The owner accesses mapped memory only inside the gate; the memory is
// unmapped after the gate is drained for the last time.
type queuePair struct {
	provider *provider
	conn     *net.UnixConn
	raw      syscall.RawConn // of conn
	terms    core.Terms      // of the peer

	// Mapped memory.
	gate    core.Gate
	gone    atomic.Bool // nothing is mapped any more; checked inside the gate
	rings   []byte
	out, in core.ImmRing // this end's immediates, and the peer's
	theirs  []byte       // the peer's generations
	imports core.Handles[imported]
	mu      sync.Mutex // guards changes of imports, and unmapping

	core.Requests
	touched uint64 // memory of operations below is prefetched; the owner's
	core.Waiter
	reader sync.WaitGroup
	lent   *core.Questions[lent] // questions of Import
}

// lent is the answer to an import.
type lent struct {
	loan
	file *os.File
}

// start maps the peer's generations and starts the goroutine that reads the socket.
func (q *queuePair) start(generations *os.File, private []byte, depth int, dialed bool) (err error) {
	q.Private = private
	q.Sends.Init(depth)
	q.InitWaiter()
	q.lent = core.NewQuestions[lent](&q.State)
	if q.raw, err = q.conn.SyscallConn(); err != nil {
		return err
	}
	if q.theirs, err = mapPeer(generations, maxRegions*8, unix.PROT_READ); err != nil {
		return err
	}
	w := words(q.rings)
	q.out, q.in = core.NewImmRing(w), core.NewImmRing(w[core.ImmRingWords:])
	if !dialed {
		q.out, q.in = core.NewImmRing(w[core.ImmRingWords:]), core.NewImmRing(w)
	}
	if err := q.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if !q.provider.Pairs.Add(q) {
		return fabric.ErrClosed
	}
	q.reader.Go(q.read)
	return nil
}

// end records the reason for the connection's end.
func (q *queuePair) end(err error) {
	if q.State.End(err) {
		q.provider.blame(err)
	}
}

// unmap removes all mappings. No goroutine is inside the gate any more.
func (q *queuePair) unmap() (err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.imports.All(func(r *imported) { err = errors.Join(err, q.provider.mappings.give(r.shared)) })
	q.imports = core.Handles[imported]{}
	for _, m := range []*[]byte{&q.rings, &q.theirs} {
		if *m != nil {
			err = errors.Join(err, unmap(*m))
			*m = nil
		}
	}
	return err
}

// read serves the control socket until the connection ends.
func (q *queuePair) read() {
	buf := make([]byte, maxMessage)
	for {
		kind, body, files, err := receive(q.conn, buf)
		if err == nil {
			err = q.handle(kind, body, files)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fabric.ErrDisconnected // no other reason is known
			} else {
				err = fmt.Errorf("%w: %w", fabric.ErrDisconnected, err)
			}
			q.end(err)
			q.Notify()
			q.lent.End()
			return
		}
	}
}

func (q *queuePair) handle(kind byte, body []byte, files []*os.File) error {
	switch {
	case kind == kindLent && len(files) == 1:
		l, err := decodeLoan(body)
		if err != nil {
			closeFiles(files)
			return err
		}
		if !q.lent.Answer(l.id, lent{loan: l, file: files[0]}, nil) {
			closeFiles(files)
		}
		return nil
	case len(files) > 0:
		closeFiles(files)
		return errMessage
	case kind == kindWake:
		q.Notify()
		return nil
	case kind == kindUnknown && len(body) == 4:
		q.lent.Answer(binary.LittleEndian.Uint32(body), lent{}, fabric.ErrBadToken)
		return nil
	case kind == kindFailed && len(body) == 4:
		q.lent.Answer(binary.LittleEndian.Uint32(body), lent{}, fabric.ErrExhausted)
		return nil
	case kind == kindImport:
		return q.lend(body)
	}
	return errMessage
}

// lend answers the peer's import.
func (q *queuePair) lend(body []byte) error {
	id, token, err := decodeImport(body)
	if err != nil {
		return err
	}
	var l loan
	var file *os.File
	if err = fabric.ErrBadToken; q.terms.Lends(token) {
		l, file, err = q.provider.regions.lend(token, q.conn, q.terms.Rights)
	}
	if err != nil {
		answer := kindFailed
		if errors.Is(err, fabric.ErrBadToken) {
			answer = kindUnknown
		}
		return send(q.conn, append([]byte{answer}, body[:4]...))
	}
	defer closeFiles([]*os.File{file})
	l.id = id
	return send(q.conn, l.encode(), file)
}

func (q *queuePair) Import(ctx context.Context, token fabric.Token) (r fabric.Remote, err error) {
	l, err := q.lent.Ask(ctx, func(question uint32) error { return q.sendWithin(ctx, encodeImport(question, token)) })
	if err == nil {
		defer closeFiles([]*os.File{l.file})
		r, err = q.enter(l)
	}
	if err != nil {
		return fabric.Remote{}, fmt.Errorf("import region: %w", err)
	}
	return r, nil
}

// sendWithin sends a message, unless ctx ends while the peer does not read and the socket is full.
func (q *queuePair) sendWithin(ctx context.Context, message []byte) error {
	err := core.Within(ctx, q.conn.SetWriteDeadline, func() error { return send(q.conn, message) })
	if ctx.Err() != nil {
		err = errors.Join(err, q.conn.SetWriteDeadline(time.Time{})) // for the reader's answers
	}
	return err
}

// enter registers an imported region and returns its handle.
func (q *queuePair) enter(l lent) (fabric.Remote, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.theirs == nil {
		return fabric.Remote{}, fabric.ErrClosed
	}
	r, err := q.provider.mappings.importRegion(l, words(q.theirs))
	if err != nil {
		return fabric.Remote{}, err
	}
	h, err := q.imports.Offer(r)
	if err != nil {
		return fabric.Remote{}, errors.Join(err, q.provider.mappings.give(r.shared))
	}
	return fabric.Remote{Handle: h, Size: r.size}, nil
}

func (q *queuePair) Release(r fabric.Remote) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.imports.Delete(r.Handle); ok {
		_ = q.provider.mappings.give(i.shared) // a whole mapping of this process: cannot fail
	}
}

// Close ends the connection. A queue pair whose peer is gone keeps its mappings until Close.
func (q *queuePair) Close() error {
	if q.gone.Swap(true) {
		return nil
	}
	q.State.End(fabric.ErrClosed)
	q.gate.Drain()
	err := q.conn.Close()
	q.Notify()
	q.reader.Wait()
	q.provider.Pairs.Remove(q)
	return errors.Join(err, q.unmap())
}
