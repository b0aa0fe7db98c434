package uring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime is the timeout of Probe.
const probeTime = 10 * time.Second

// Probe returns an error if rings do not work. It makes one and tries each of its operations.
func Probe() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("uring: eventfd: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := New(1)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	count := append([]byte(nil), wakeOnce...)
	for _, enqueue := range []func(int, []byte, int64, uint64) bool{r.Write, r.Read} {
		enqueue(fd, count, 0, 0)
		var done [1]Completion
		for r.Reap(done[:]) == 0 {
			if err := r.Wait(ctx); err != nil {
				return fmt.Errorf("uring: probe: %w", err) // r does not work and is left open
			}
		}
		if res := done[0].Res; res < 0 {
			return errors.Join(fmt.Errorf("uring: probe: %w", unix.Errno(-res)), r.Close())
		}
	}
	r.Wake()
	for r.armed {
		if err := r.Wait(ctx); err != nil {
			return fmt.Errorf("uring: probe: %w", err)
		}
	}
	return r.Close()
}
