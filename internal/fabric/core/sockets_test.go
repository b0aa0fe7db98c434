package core

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/testrun"
)

// Reject ends an Accept that waits for the peer.
func TestRejectEndsAccept(t *testing.T) {
	s := Sockets{Transport: "test"}
	conn, peer := net.Pipe() // a write waits until the peer reads
	defer func() { _ = peer.Close() }()
	waits := make(chan struct{})
	r := s.NewRequest(conn, nil, func(answer []byte, _ Terms) (fabric.QueuePair, error) {
		close(waits)
		_, err := conn.Write([]byte("accepted"))
		return nil, err
	}, func(string) { t.Error("an accepted request is rejected") })
	ended := make(chan error, 1)
	go func() {
		_, err := r.Accept(nil, fabric.ReadWrite)
		ended <- err
	}()
	testrun.Receive(t, "Accept waits", waits)
	if err := r.Reject("over"); err != nil {
		t.Error(err)
	}
	if err := testrun.Receive(t, "Accept ends", ended); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Accept: %v", err)
	}
}
