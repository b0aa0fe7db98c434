package poll

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epoll implements Poller on Linux.
type epoll struct {
	fd     int
	eventf int // an eventfd among the files: a write to it ends a wait
	events [maxReady]unix.EpollEvent
	ready  [maxReady]int32
}

// hangUps are the events of Gone. Input that was not read yet does not hide them.
const hangUps = unix.POLLRDHUP

// maxReady is the most files that a wait returns: with a commit for each wait, the more the better.
const maxReady = 1024

// New returns a Poller without files.
func New() (Poller, error) {
	p := new(epoll)
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if p.eventf, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(p.fd)
		return nil, err
	}
	if err := p.Add(p.eventf); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *epoll) Close() {
	_ = unix.Close(p.eventf)
	_ = unix.Close(p.fd)
}

func (p *epoll) Add(fd int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (p *epoll) Remove(fd int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

func (p *epoll) Wake() error {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	if _, err := unix.Write(p.eventf, one); err != nil && !errors.Is(err, unix.EAGAIN) { // EAGAIN: the counter is full, so a wait ends anyway
		return err
	}
	return nil
}

func (p *epoll) Wait(ms int) (ready []int32, woken bool, err error) {
	n, err := unix.EpollWait(p.fd, p.events[:], ms)
	return p.sort(n, err)
}

func (p *epoll) WaitHeld(ms int) (ready []int32, woken bool, err error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), uintptr(ms), 0, 0)
	if errno != 0 {
		return nil, false, errno
	}
	return p.sort(int(n), nil)
}

// sort separates the event of Wake from those of files.
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
