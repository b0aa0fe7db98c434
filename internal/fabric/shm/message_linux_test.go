package shm

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/testrun"
)

// The files of a message without bytes are closed.
func TestEmptyMessageWithFiles(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := os.NewFile(uintptr(fds[1]), "peer")
	defer func() { _ = peer.Close() }()
	own := os.NewFile(uintptr(fds[0]), "own")
	c, err := net.FileConn(own)
	if err = errors.Join(err, own.Close()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	rights := unix.UnixRights(int(w.Fd()))
	m := unix.Msghdr{Control: &rights[0]}
	m.SetControllen(len(rights))
	if _, _, errno := unix.Syscall(unix.SYS_SENDMSG, peer.Fd(), uintptr(unsafe.Pointer(&m)), 0); errno != 0 {
		t.Fatal(errno)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, files, err := receive(c.(*net.UnixConn), make([]byte, 16)); err == nil || len(files) > 0 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if err := r.SetReadDeadline(time.Now().Add(testrun.Patience(testrun.Bound))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the pipe, which the message's file keeps open: %v", err)
	}
}
