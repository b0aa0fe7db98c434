package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

// watch begins to watch a cache, if it is not watched yet.
func (r *run) watch(c *cache) error {
	if c.told != nil {
		return nil
	}
	c.told = make(chan struct{})
	stream, err := c.over.Watch(r.watching, connect.NewRequest(&managerv1.WatchRequest{CacheId: c.id}))
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	go func() { // until the manager or the run ends
		defer func() { _ = stream.Close() }()
		defer close(c.told)
		for stream.Receive() {
			if stream.Msg().GetKind() == managerv1.WatchResponse_KIND_VM_FAILED {
				return
			}
		}
	}()
	return nil
}

// Of the VMs, one in rackShare is in the rack that ends, at most rackMost.
const (
	rackShare = 5
	rackMost  = 500
)

// rack ends a rack of VMs at once. Its servers refuse connections, and the manager is told
// as by a platform: each VM is reclaimed without notice. It measures from the first of these
// calls until the last cache with memory there was told that its VM has failed.
func (r *run) rack(ctx context.Context) error {
	size := min(max(1, r.VMs/rackShare), rackMost)
	rack := map[string]bool{}
	var ids []string
	add := func(id string) {
		if len(ids) < size && !rack[id] {
			rack[id], ids = true, append(ids, id)
		}
	}
	for _, c := range r.caches { // VMs that are used, first
		for _, id := range c.vms {
			add(id)
		}
	}
	for _, v := range r.servers.list {
		add(v.id)
	}
	var struck []*cache
	for _, c := range r.caches {
		if slices.ContainsFunc(c.vms, func(id string) bool { return rack[id] }) {
			struck = append(struck, c)
		}
	}
	for _, c := range struck {
		if err := r.watch(c); err != nil {
			return err
		}
	}
	remain := r.beating.joined.Load() - int64(len(rack))
	err := r.measure("rack", len(rack), func(row *Row) error {
		for id := range rack {
			r.servers.all[id].dead.Store(true)
		}
		began := time.Now()
		if err := r.each(ctx, len(rack), func(ctx context.Context, i int) error {
			_, err := r.mgr.Reclaim(ctx, connect.NewRequest(&managerv1.ReclaimRequest{VmId: ids[i], Reason: "rack lost"}))
			return err
		}); err != nil {
			return err
		}
		late := time.After(time.Minute)
		for _, c := range struck {
			select {
			case <-c.told:
			case <-late:
				return errors.New("some caches were not told in a minute")
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		row.ToldS, row.ToldCount = time.Since(began).Seconds(), len(struck)
		return nil
	})
	for err == nil && r.beating.joined.Load() > remain { // the servers there stop beating
		if !clock.Sleep(ctx, time.Millisecond) {
			err = ctx.Err()
		}
	}
	return err
}
