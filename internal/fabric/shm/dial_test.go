//go:build linux

package shm

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
)

// A failed dial unmaps each mapping once. A second unmap could hit a mapping of another dial
// that succeeded meanwhile.
func TestFailedDialUnmapsOnce(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := p.Listen("", 1)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if r, err := l.Accept(context.Background()); err == nil {
			_ = r.Reject("full")
		}
	}()
	_, err = p.Dial(context.Background(), l.Addr(), nil, 1)
	if !errors.Is(err, fabric.ErrRejected) || errors.Is(err, unix.EINVAL) {
		t.Errorf("rejected dial: %v", err)
	}
}
