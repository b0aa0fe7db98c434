package resp

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epoll is Linux's poller.
type epoll struct {
	fd     int
	eventf int // its eventfd is one of its files: who writes to it wakes whoever waits
	events [128]unix.EpollEvent
	ready  [128]int32
}

func newPoller() (poller, error) {
	p := new(epoll)
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if p.eventf, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(p.fd)
		return nil, err
	}
	if err := p.add(p.eventf); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *epoll) close() {
	_ = unix.Close(p.eventf)
	_ = unix.Close(p.fd)
}

func (p *epoll) add(fd int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (p *epoll) remove(fd int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

func (p *epoll) wake() error {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	if _, err := unix.Write(p.eventf, one); err != nil && !errors.Is(err, unix.EAGAIN) { // EAGAIN: it is awake
		return err
	}
	return nil
}

func (p *epoll) wait(ms int) (ready []int32, woken bool, err error) {
	n, err := unix.EpollWait(p.fd, p.events[:], ms)
	return p.sort(n, err)
}

func (p *epoll) waitHeld(ms int) (ready []int32, woken bool, err error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), uintptr(ms), 0, 0)
	if errno != 0 {
		return nil, false, errno
	}
	return p.sort(int(n), nil)
}

// sort tells its own event from those of connections.
func (p *epoll) sort(n int, err error) (ready []int32, woken bool, _ error) {
	if err != nil {
		return nil, false, err
	}
	ready = p.ready[:0]
	for i := range p.events[:n] {
		fd := p.events[i].Fd
		if fd != int32(p.eventf) {
			ready = append(ready, fd)
			continue
		}
		var count [8]byte
		_, _ = unix.Read(p.eventf, count[:]) // its value does not matter
		woken = true
	}
	return ready, woken, nil
}
