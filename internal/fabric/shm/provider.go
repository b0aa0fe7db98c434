//go:build linux

package shm

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

const network = "unixpacket"

type provider struct {
	core.Sockets
	regions  *regions
	mappings mappings
}

// Open returns a new provider. It fails if the system has no memory files.
func Open() (fabric.Provider, error) { return openProvider(false) }

// OpenSparse is Open for regions of which little is written: they are not prepared, and their
// memory comes in small pages.
func OpenSparse() (fabric.Provider, error) { return openProvider(true) }

func openProvider(sparse bool) (fabric.Provider, error) {
	r, err := newRegions(sparse)
	if err != nil {
		return nil, fmt.Errorf("open shm: %w", err)
	}
	return &provider{
		Sockets: core.Sockets{Transport: Name, Network: network}, regions: r,
		mappings: mappings{keepFiles: sparse, byFile: map[fileID]*mapping{}},
	}, nil
}

// blame counts a connection that ends with err, if the peer caused it.
func (p *provider) blame(err error) {
	if errors.Is(err, errMessage) || errors.Is(err, errFile) || errors.Is(err, core.ErrCorruptRing) {
		p.CountMalformed()
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
	if addr == "" {
		name := core.NewToken()
		addr = "@redykv-" + hex.EncodeToString(name[:])
	}
	return p.Serve(addr, depth, func(c net.Conn) (fabric.Request, error) {
		r, err := p.hello(c.(*net.UnixConn), depth)
		p.blame(err)
		return r, err
	})
}

func (p *provider) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	return p.Connect(ctx, addr, private, depth, func(c net.Conn) (fabric.QueuePair, error) {
		return p.greet(ctx, c.(*net.UnixConn), private, depth)
	})
}

// greet sends the greeting and returns the queue pair that the answer allows.
func (p *provider) greet(ctx context.Context, conn *net.UnixConn, private []byte, depth int) (fabric.QueuePair, error) {
	rings, err := newShared("redykv-rings", 2*core.ImmRingWords*8)
	if err != nil {
		return nil, err
	}
	q := &queuePair{provider: p, conn: conn, rings: rings.data}
	var kind byte
	var body []byte
	var files []*os.File
	err = core.Within(ctx, conn.SetReadDeadline, func() error {
		hello := append(append([]byte{kindHello}, magic...), private...)
		err := send(conn, hello, p.regions.generations.memory.file, rings.file)
		if err == nil {
			kind, body, files, err = receive(conn, make([]byte, maxMessage))
		}
		return err
	})
	defer closeFiles(append(files, rings.file))
	switch {
	case err != nil:
	case kind == kindRejected:
		err = fmt.Errorf("%w: %s", fabric.ErrRejected, body)
	case kind != kindAccepted || len(body) > fabric.MaxPrivate || len(files) != 1:
		err = errMessage
	default:
		err = q.start(files[0], body, depth, true)
	}
	if err != nil {
		// The queue pair unmaps the rings. Unmapping them twice could remove another
		// mapping.
		return nil, errors.Join(err, q.unmap())
	}
	return q, nil
}

func (p *provider) Close() error {
	return errors.Join(p.Listeners.Close(), p.Pairs.Close(), p.regions.Close())
}

// hello reads the greeting of another process.
func (p *provider) hello(conn *net.UnixConn, depth int) (fabric.Request, error) {
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
	return p.NewRequest(conn, body[n:], func(answer []byte, terms core.Terms) (fabric.QueuePair, error) {
		defer closeFiles(files)
		q, err := p.accept(conn, body[n:], files, answer, depth, terms)
		p.blame(err)
		return q, err
	}, func(reason string) {
		defer closeFiles(files)
		_ = send(conn, append([]byte{kindRejected}, reason[:min(len(reason), maxMessage-1)]...)) // the peer may be gone
	}), nil
}

// accept answers a greeting. files are the peer's generations and rings.
func (p *provider) accept(conn *net.UnixConn, private []byte, files []*os.File, answer []byte, depth int, terms core.Terms) (q *queuePair, err error) {
	q = &queuePair{provider: p, conn: conn, terms: terms}
	if q.rings, err = mapPeer(files[1], 2*core.ImmRingWords*8, protReadWrite); err != nil {
		return nil, err
	}
	err = send(conn, append([]byte{kindAccepted}, answer...), p.regions.generations.memory.file)
	if err == nil {
		err = q.start(files[0], private, depth, false)
	}
	if err != nil {
		return nil, errors.Join(err, q.unmap())
	}
	return q, nil
}

// sameUser refuses processes of other users except root: an abstract socket has no
// permissions.
func sameUser(conn *net.UnixConn) error {
	peer, err := peerOf(conn)
	if err != nil {
		return err
	}
	if uid := int(peer.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("shm: process %d belongs to another user, %d", peer.Pid, peer.Uid)
	}
	return nil
}
