package manager

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
)

// release gives back shares that no cache has any more, from all VMs at once, so
// that one that does not answer keeps nobody else from it. It goes on whatever
// happens to the caller. whole says that nothing of the cache is to stay.
func (m *Manager) release(cache string, shares []*share, whole bool) {
	var releasing sync.WaitGroup
	for _, p := range m.catalog.part(shares) {
		if p.failed && !whole {
			// What is left of it is nobody's who could wait: the cache lives on.
			m.work.Go(func() { m.releaseVM(cache, p, whole) })
			continue
		}
		releasing.Go(func() { m.releaseVM(cache, p, whole) })
	}
	releasing.Wait()
	_ = m.catalog.free(shares) // the manager ends if the store does
}

// releaseVM terminates a VM that was launched for the cache and serves nothing
// else. Any other is told to disconnect the grants; one that cannot be told is
// failed.
func (m *Manager) releaseVM(cache string, p parting, whole bool) {
	ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
	defer cancel()
	if p.terminate {
		m.observe(p.vm, false)
		m.terminate(ctx, p.vm.id)
		return
	}
	if whole {
		p.grants = []string{""} // all of them, whoever gave them
	}
	for _, grant := range p.grants {
		if err := disconnect(ctx, p.vm.VM, cache, grant); err != nil {
			m.opts.Logger.Warn("cache not disconnected", "cache", cache, "vm", p.vm.id, "grant", grant, "err", err)
			m.fail(p.vm, "does not answer")
			return
		}
	}
}

// disconnect takes the regions of a grant back from a server, or of all grants.
// A cache that has none there, because the client never connected or left first,
// is no error.
func disconnect(ctx context.Context, v VM, cacheID, grant string) error {
	client := serverv1connect.NewCacheServerServiceClient(httpClient, v.ControlURL, connect.WithReadMaxBytes(maxMessage))
	req := connect.NewRequest(&serverv1.DisconnectRequest{CacheId: cacheID, Grant: grant})
	v.authorize(req.Header())
	_, err := client.Disconnect(ctx, req)
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return err
	}
	return nil
}
