//go:build linux

package shm

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

const network = "unixpacket"

type provider struct {
	regions   *regions
	listeners core.Closers
	pairs     core.Closers
	malformed atomic.Uint64
}

// Open returns a new provider. It fails if the system has no memory files.
func Open() (fabric.Provider, error) {
	l, err := newLeases()
	if err != nil {
		return nil, fmt.Errorf("open shm: %w", err)
	}
	return &provider{regions: &regions{leases: l, byToken: map[fabric.Token]*region{}}}, nil
}

func (p *provider) Name() string { return Name }

// Malformed returns the number of connections that ended because of malformed messages.
func (p *provider) Malformed() uint64 { return p.malformed.Load() }

// blame counts a connection that ends with err, if the peer caused it.
func (p *provider) blame(err error) {
	if errors.Is(err, errMessage) || errors.Is(err, errFile) || errors.Is(err, core.ErrCorruptRing) {
		p.malformed.Add(1)
	}
}

func (p *provider) Alloc(size int) (fabric.Region, error) {
	r, err := p.regions.alloc(size)
	if err != nil {
		return nil, fmt.Errorf("shm alloc: %w", err)
	}
	return r, nil
}

// Listen listens on a unix socket at the path addr, or, if that is empty, on an
// abstract one, which disappears with the process. Only processes of the same user may
// connect.
func (p *provider) Listen(addr string, depth int) (fabric.Listener, error) {
	l, err := p.listen(addr, depth)
	if err != nil {
		return nil, fmt.Errorf("shm listen %q: %w", addr, err)
	}
	return l, nil
}

func (p *provider) listen(addr string, depth int) (*listener, error) {
	if err := core.CheckDepth(depth); err != nil {
		return nil, err
	}
	if addr == "" {
		name := core.NewToken()
		addr = "@redykv-" + hex.EncodeToString(name[:])
	}
	s, err := net.ListenUnix(network, &net.UnixAddr{Name: addr, Net: network})
	if err != nil {
		return nil, err
	}
	l := &listener{provider: p, depth: depth, addr: addr}
	l.acceptor = core.NewAcceptor(s, l.hello)
	if !p.listeners.Add(l) {
		return nil, errors.Join(fabric.ErrClosed, l.Close())
	}
	return l, nil
}

func (p *provider) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	q, err := p.dial(ctx, addr, private, depth)
	if err != nil {
		return nil, fmt.Errorf("shm dial %q: %w", addr, err)
	}
	return q, nil
}

func (p *provider) dial(ctx context.Context, addr string, private []byte, depth int) (*queuePair, error) {
	if err := errors.Join(core.CheckPrivate(private), core.CheckDepth(depth)); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	q, err := p.greet(ctx, conn, private, depth)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return q, nil
}

// greet sends the greeting and returns the queue pair that the answer allows.
func (p *provider) greet(ctx context.Context, conn *net.UnixConn, private []byte, depth int) (*queuePair, error) {
	// The end of ctx ends a blocked read by moving its deadline into the past.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	rings, err := newShared("redykv-rings", 2*core.ImmRingWords*8)
	if err != nil {
		return nil, err
	}
	q := &queuePair{provider: p, conn: conn, rings: rings.data}
	fail := func(err error) (*queuePair, error) {
		// The queue pair unmaps the mapping. Unmapping it twice could remove another
		// mapping.
		return nil, errors.Join(err, rings.file.Close(), q.unmap())
	}
	hello := append(append([]byte{kindHello}, magic...), private...)
	if err := send(conn, hello, p.regions.leases.memory.file, rings.file); err != nil {
		return fail(err)
	}
	buf := make([]byte, maxMessage)
	kind, body, files, err := receive(conn, buf)
	defer closeFiles(files)
	switch {
	case ctx.Err() != nil:
		return fail(context.Cause(ctx))
	case err != nil:
		return fail(err)
	case kind == kindRejected:
		return fail(fmt.Errorf("%w: %s", fabric.ErrRejected, body))
	case kind != kindAccepted || len(body) > fabric.MaxPrivate || len(files) != 1:
		return fail(errMessage)
	}
	q.private = append([]byte(nil), body...)
	if !stop() {
		return fail(context.Cause(ctx))
	}
	if err := q.start(files[0], depth, true); err != nil {
		return fail(err)
	}
	return q, rings.file.Close()
}

func (p *provider) Close() error {
	return errors.Join(p.listeners.Close(), p.pairs.Close(), p.regions.Close())
}

// listener accepts the connections of other processes.
type listener struct {
	provider *provider
	addr     string
	depth    int
	acceptor *core.Acceptor
	once     sync.Once
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Accept(ctx context.Context) (fabric.Request, error) { return l.acceptor.Accept(ctx) }

func (l *listener) Close() (err error) {
	l.once.Do(func() {
		l.provider.listeners.Remove(l)
		err = l.acceptor.Close()
	})
	return err
}

func (l *listener) hello(c net.Conn) (fabric.Request, error) {
	r, err := l.greet(c.(*net.UnixConn))
	if err != nil {
		l.provider.blame(err)
		return nil, err
	}
	return r, nil
}

func (l *listener) greet(conn *net.UnixConn) (*request, error) {
	if err := sameUser(conn); err != nil {
		return nil, err
	}
	kind, body, files, err := receive(conn, make([]byte, maxMessage))
	if err != nil {
		return nil, err
	}
	n := len(magic)
	if kind != kindHello || len(body) < n || string(body[:n]) != magic || len(body) > n+fabric.MaxPrivate || len(files) != 2 {
		closeFiles(files)
		return nil, errMessage
	}
	return &request{listener: l, conn: conn, private: body[n:], files: files}, nil
}

// sameUser refuses processes of other users except root: an abstract socket has no
// permissions.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if peerErr != nil {
		return peerErr
	}
	if uid := int(peer.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("shm: process %d belongs to another user, %d", peer.Pid, peer.Uid)
	}
	return nil
}

// request is a process that has sent its greeting. It is answered once.
type request struct {
	listener *listener
	conn     *net.UnixConn
	private  []byte
	files    []*os.File // leases, rings
	answered bool
}

func (r *request) Private() []byte { return r.private }

func (r *request) Accept(private []byte) (fabric.QueuePair, error) {
	if err := core.CheckPrivate(private); err != nil {
		return nil, err
	}
	if r.answered {
		return nil, errors.New("shm accept: already answered")
	}
	r.answered = true
	defer closeFiles(r.files)
	q, err := r.accept(private)
	if err != nil {
		r.listener.provider.blame(err)
		return nil, errors.Join(fmt.Errorf("shm accept at %s: %w", r.listener.addr, err), r.conn.Close())
	}
	return q, nil
}

func (r *request) accept(private []byte) (*queuePair, error) {
	q := &queuePair{provider: r.listener.provider, conn: r.conn, private: r.private}
	var err error
	if q.rings, err = mapPeer(r.files[1], 2*core.ImmRingWords*8, protReadWrite); err != nil {
		return nil, err
	}
	err = r.conn.SetDeadline(time.Now().Add(core.HandshakeTime))
	if err == nil {
		err = send(r.conn, append([]byte{kindAccepted}, private...), q.provider.regions.leases.memory.file)
	}
	if err == nil {
		err = q.start(r.files[0], r.listener.depth, false)
	}
	if err != nil {
		return nil, errors.Join(err, q.unmap())
	}
	return q, nil
}

func (r *request) Reject(reason string) error {
	if r.answered {
		return nil
	}
	r.answered = true
	defer closeFiles(r.files)
	if len(reason) > maxMessage-1 {
		reason = reason[:maxMessage-1]
	}
	_ = send(r.conn, append([]byte{kindRejected}, reason...)) // the peer may be gone
	return r.conn.Close()
}
