//go:build linux

package shm

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// process is a peer's process. Its descriptor tells whether it has exited: then it has no
// mappings any more.
type process struct {
	id    int32
	fd    *os.File
	users int // regions that were lent to it
}

// exited reports whether the process has ended.
func (p *process) exited() bool {
	fds := []unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// processes are those that regions of a provider were lent to. Guarded by regions.mu.
type processes map[int32]*process

// take returns the process at the other end of a socket, or nil if it cannot be observed. The
// caller gives it back.
func (s processes) take(conn *net.UnixConn) *process {
	id, fd, err := peerProcess(conn)
	if err != nil {
		return nil
	}
	if p := s[id]; p != nil && !p.exited() { // else another process has its number now
		_ = fd.Close() // it names the same process
		p.users++
		return p
	}
	p := &process{id: id, fd: fd, users: 1}
	s[id] = p
	return p
}

// give gives a process back.
func (s processes) give(p *process) {
	if p.users--; p.users > 0 {
		return
	}
	if s[p.id] == p {
		delete(s, p.id)
	}
	_ = p.fd.Close() // nothing was written
}

// peerProcess returns the number and a descriptor of the process that connected a socket.
func peerProcess(conn *net.UnixConn) (id int32, fd *os.File, err error) {
	peer, err := peerOf(conn)
	if err != nil {
		return 0, nil, err
	}
	// The process is connected, so its number is not reused while it is looked up, unless it
	// ends at this moment. Then it cannot have got anything from this end.
	n, err := unix.PidfdOpen(int(peer.Pid), 0)
	if err != nil {
		return 0, nil, fmt.Errorf("shm: process %d: %w", peer.Pid, err)
	}
	return peer.Pid, os.NewFile(uintptr(n), "process"), nil
}

// peerOf returns the user and process that connected a socket.
func peerOf(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if failed != nil {
		return nil, failed
	}
	return peer, err
}
