//go:build verbs && linux && cgo

package verbs

/*
#cgo LDFLAGS: -lrdmacm -libverbs
#include "queue.h"

static const void *private_data(const struct rdma_cm_event *e) { return e->param.conn.private_data; }
static uint8_t private_length(const struct rdma_cm_event *e) { return e->param.conn.private_data_len; }
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric/core"
)

// descriptor is a library's file descriptor in Go's network poller, so that waiting for it
// blocks no thread. It is a duplicate: the library closes the original.
type descriptor struct {
	file *os.File
	raw  syscall.RawConn
}

func newDescriptor(fd C.int, name string) (*descriptor, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), unix.Close(dup))
	}
	f := os.NewFile(uintptr(dup), name)
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return &descriptor{file: f, raw: raw}, nil
}

// await calls take whenever f is readable, until take returns something other than EAGAIN.
func (d *descriptor) await(take func() error) error {
	var err error
	if waiting := d.raw.Read(func(uintptr) bool {
		err = take()
		return !errors.Is(err, unix.EAGAIN)
	}); waiting != nil {
		return waiting
	}
	return err
}

// cmEvents is an event channel of the connection manager.
type cmEvents struct {
	channel *C.struct_rdma_event_channel
	*descriptor
}

func newCMEvents() (*cmEvents, error) {
	channel, err := C.rdma_create_event_channel()
	if channel == nil {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	d, err := newDescriptor(channel.fd, "connection manager")
	if err != nil {
		C.rdma_destroy_event_channel(channel)
		return nil, err
	}
	return &cmEvents{channel, d}, nil
}

// destroy destroys the channel. Its ids must be destroyed, or moved to another channel, before.
func (e *cmEvents) destroy() error {
	err := e.file.Close()
	C.rdma_destroy_event_channel(e.channel)
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// cmEvent is an acknowledged event.
type cmEvent struct {
	kind    C.enum_rdma_cm_event_type
	status  int
	id      *C.struct_rdma_cm_id
	private []byte // private data of a connection request
}

func (e cmEvent) Error() string {
	text := C.GoString(C.rdma_event_str(e.kind))
	if e.status < 0 {
		return fmt.Sprintf("%s: %v", text, syscall.Errno(-e.status))
	}
	return fmt.Sprintf("%s (status %d)", text, e.status)
}

// next waits for an event.
func (e *cmEvents) next() (cmEvent, error) {
	var event *C.struct_rdma_cm_event
	err := e.await(func() error {
		if n, err := C.rdma_get_cm_event(e.channel, &event); n != 0 {
			return err
		}
		return nil
	})
	if err != nil {
		return cmEvent{}, fmt.Errorf("connection manager: %w", err)
	}
	c := cmEvent{kind: event.event, status: int(event.status), id: event.id}
	if n := C.private_length(event); c.kind == C.RDMA_CM_EVENT_CONNECT_REQUEST && n > 0 {
		c.private = C.GoBytes(C.private_data(event), C.int(n))
	}
	C.rdma_ack_cm_event(event)
	return c, nil
}

// expect waits for an event of the given kind; another kind is an error.
func (e *cmEvents) expect(ctx context.Context, kind C.enum_rdma_cm_event_type) error {
	return core.Within(ctx, e.file.SetReadDeadline, func() error {
		event, err := e.next()
		if err == nil && event.kind != kind {
			err = event
		}
		return err
	})
}
