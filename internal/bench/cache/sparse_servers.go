package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/server"
)

// ServeSparse runs some of a spec's servers in this process until ctx ends, and calls ready with
// URLs when they are registered. Without a URL it runs the manager and the two servers between which
// a region moves: one lends one region, the other has room for it. The URLs are those of the manager
// and of plain copies, see serveCopies; over mem there are none of the latter. With the URL of that
// manager it runs the servers of all other regions.
func ServeSparse(ctx context.Context, spec SparseSpec, url string, ready func(manager, copies string)) error {
	if err := cmp.Or(spec.Check(), checkFiles(&spec), checkMemory(&spec)); err != nil {
		return fmt.Errorf("cachebench: %w", err)
	}
	if url != "" {
		return spec.serve(ctx, access.Dial(url), 0, spec.lends(), func() { ready(url, "") })
	}
	m, err := manager.Embed(ctx, manager.EmbedOptions{Pool: true, Lease: spec.Lease, Logger: spec.Log})
	if err != nil {
		return err
	}
	copies := ""
	if spec.Transport != mem.Name { // then this process has the cache's client, too
		copies, err = serveCopies(ctx, spec.Transport)
	}
	if err == nil {
		err = spec.serve(ctx, m, spec.Servers-1, []int{1, 1}, func() { ready(m.URL(), copies) })
	}
	return errors.Join(err, m.Close())
}

// serve runs a server for each element of lends until ctx ends, and calls ready when all are
// registered. Server i has the number first+i and lends lends[i] regions.
func (s *SparseSpec) serve(ctx context.Context, mgr access.Client, first int, lends []int, ready func()) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running errgroup.Group
	defer func() {
		cancel()
		err = errors.Join(err, running.Wait())
	}()
	var registered sync.WaitGroup
	for i, regions := range lends {
		n, err := node.Start(node.Options{
			ID: serverID(first + i), Memory: uint64(regions) * uint64(s.RegionSize), Sparse: true,
			Transport: s.Transport, Pinning: server.PinNever, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return fmt.Errorf("cachebench: server %d of %d: %w", first+i+1, s.Servers+1, err)
		}
		registered.Add(1)
		once := sync.OnceFunc(registered.Done)
		running.Go(func() error {
			defer once()
			return errors.Join(n.Announce(ctx, mgr, once), n.Close())
		})
	}
	registered.Wait()
	if ctx.Err() == nil {
		ready()
	}
	<-ctx.Done()
	return nil
}

func serverID(number int) string { return fmt.Sprintf("server-%d", number) }

// lends returns how many regions each server lends, without the two between which one moves.
func (s *SparseSpec) lends() []int {
	lends, left := make([]int, s.Servers-1), s.Regions()-1
	for i := range lends {
		lends[i] = left / (len(lends) - i)
		left -= lends[i]
	}
	return lends
}
