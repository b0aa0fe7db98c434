package manager

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/node"
)

// release gives back grants that no cache has any more, from all VMs at once, so
// that one that does not answer keeps nobody else from it. It goes on whatever
// happens to the caller. whole says that nothing of the cache is to stay.
func (m *Manager) release(cache string, grants []*grant, whole bool) {
	var (
		releasing sync.WaitGroup
		mu        sync.Mutex
		free      []*grant
	)
	for _, p := range m.state.part(grants) {
		releasing.Go(func() {
			switch {
			case p.failed && !whole:
				// What is left of it is nobody's who could wait: the cache lives on.
				m.work.Go(func() { m.releaseVM(context.Background(), cache, p, whole) })
			case !m.releaseVM(context.Background(), cache, p, whole):
				m.work.Go(func() { m.releaseLater(cache, p, whole) })
				return
			}
			mu.Lock()
			defer mu.Unlock()
			free = append(free, p.grants...)
		})
	}
	releasing.Wait()
	_ = m.state.free(free) // the manager ends if the store does
}

// releaseLater tries again and again, less and less often, at a server that does not
// release: until then what it has lent stays reserved. If the manager ends first, the next
// one finds it by its audit.
func (m *Manager) releaseLater(cache string, p parting, whole bool) {
	longest := max(m.opts.Heartbeat, maxReleasePause)
	for wait := m.opts.Heartbeat; clock.Sleep(m.ctx, wait); wait = min(2*wait, longest) {
		if m.releaseVM(m.ctx, cache, p, whole) {
			_ = m.state.free(p.grants) // the manager ends if the store does
			return
		}
	}
}

// maxReleasePause is the longest pause between two attempts of releaseLater, if heartbeats
// do not come less often.
const maxReleasePause = 30 * time.Second

// releaseVM terminates a VM that was launched for the cache and serves nothing
// else. Any other is told to disconnect the grants. One that cannot be told is failed,
// unless it sends heartbeats and others use it or it is only slow: it may be well, and
// releaseVM returns false. The end of ctx fails nobody.
func (m *Manager) releaseVM(ctx context.Context, cache string, p parting, whole bool) bool {
	call, cancel := context.WithTimeout(ctx, terminateTimeout)
	defer cancel()
	if p.terminate {
		m.observe(p.vm, false)
		m.terminate(call, p.vm.id)
		return true
	}
	if whole {
		p.ids = []string{""} // all of them, whoever gave them
	}
	for _, grant := range p.ids {
		err := m.disconnect(call, p.info, cache, grant)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return false // the manager ends
		}
		m.opts.Logger.Warn("cache not disconnected", "cache", cache, "vm", p.vm.id, "grant", grant, "err", err)
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			return false // it is well, and obeys another manager
		}
		if beats, used := m.state.beats(p.vm); beats && (used || connect.CodeOf(err) == connect.CodeDeadlineExceeded) {
			return false
		}
		m.fail(p.vm, "does not answer")
		break
	}
	return true
}

// disconnect takes the regions of a grant back from a server, or of all grants.
// A cache that has none there, because the client never connected or left first,
// is no error.
func (m *Manager) disconnect(ctx context.Context, v node.VM, cacheID, grant string) error {
	client := serverv1connect.NewCacheServerServiceClient(m.servers, v.ControlURL, connect.WithReadMaxBytes(maxMessage))
	req := connect.NewRequest(&serverv1.DisconnectRequest{CacheId: cacheID, Grant: grant})
	v.Authorize(req.Header(), m.self)
	_, err := client.Disconnect(ctx, req)
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return err
	}
	return nil
}
