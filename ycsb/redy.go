package ycsb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/redytier"
)

// Transports of a Redy cache, by [Shape].Transport.
const (
	TransportSHM   = "shm"   // a cache server process on this machine, over shared memory; the default
	TransportTCP   = "tcp"   // a cache server process on this machine, over loopback
	TransportVerbs = "verbs" // a cache server process on this machine, over RDMA
	TransportMem   = "mem"   // a cache server in this process
)

// openRedy starts a manager in this process, which starts a cache server, and makes a cache
// there. Release ends both.
func (s *Storage) openRedy(ctx context.Context, shape Shape) (device.Device, error) {
	network, err := fabric.ParseNetwork(shape.Net)
	if err != nil {
		return nil, err
	}
	name := shape.transport()
	allocator, err := newAllocator(name, shape.CacheServer)
	if err != nil {
		return nil, err
	}
	mgr, err := manager.Embed(ctx, manager.EmbedOptions{Allocator: allocator})
	if err != nil {
		return nil, err
	}
	dev, err := redytier.Open(ctx, mgr, redytier.Config{
		Capacity: shape.Cache, Transport: name, Net: shape.Net, OnEvent: s.history.memory,
	})
	if err != nil {
		return nil, errors.Join(err, mgr.Close())
	}
	s.release = mgr.Close
	s.Transport, s.Net = name, network.String()
	return dev, nil
}

func newAllocator(transport string, command []string) (allocator.Allocator, error) {
	if transport == TransportMem {
		return allocator.NewInProcess(allocator.InProcessOptions{})
	}
	return allocator.NewLocal(allocator.LocalOptions{Command: command, Transport: transport})
}

func (s Shape) transport() string {
	if s.Transport == "" {
		return TransportSHM
	}
	return s.Transport
}

// checkRedy returns an error for an unknown transport or network.
func (s Shape) checkRedy() error {
	if !slices.Contains(transport.Names(), s.transport()) {
		return fmt.Errorf("unknown transport %q: want one of %s", s.Transport, strings.Join(transport.Names(), ", "))
	}
	_, err := fabric.ParseNetwork(s.Net)
	return err
}
