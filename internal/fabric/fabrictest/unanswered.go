package fabrictest

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/redykv/redykv/internal/fabric"
)

// RunUnanswered closes a provider while requests are neither accepted nor rejected. Their
// peers are told, and nothing of them stays open.
func RunUnanswered(t *testing.T, open func() fabric.Provider) {
	const requests = 10
	before := openFiles(t)
	p, dialler := open(), open()
	l, err := p.Listen("", 1)
	if err != nil {
		t.Fatal(err)
	}
	dialled := make(chan error, requests)
	for range requests {
		go func() {
			_, err := dialler.Dial(t.Context(), l.Addr(), nil, 1)
			dialled <- err
		}()
	}
	for range requests {
		if _, err := l.Accept(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for range requests {
		if err := <-dialled; !errors.Is(err, fabric.ErrRejected) {
			t.Errorf("an unanswered peer: %v, want %v", err, fabric.ErrRejected)
		}
	}
	if err := dialler.Close(); err != nil {
		t.Error(err)
	}
	if after := openFiles(t); after > before+2 { // the poller's
		t.Errorf("%d files are open, want %d", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("open files are counted on Linux only:", err)
	}
	return len(files)
}
