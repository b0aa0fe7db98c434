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

// release releases grants that were removed from a cache, on all VMs concurrently, as a
// server may not answer. It does not end with the caller's context. whole says that the
// cache has no other grants.
func (m *Manager) release(cache string, grants []*grant, whole bool) {
	var (
		releasing sync.WaitGroup
		mu        sync.Mutex
		free      []*grant
	)
	for _, p := range m.state.byVM(grants) {
		releasing.Go(func() {
			switch {
			case p.failed && !whole:
				// The caller, whose cache lives on, does not wait for a failed VM.
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

// releaseLater repeats a release that failed, with growing pauses. Until it succeeds, the
// memory stays reserved. If the manager ends first, the next one's audit finds the grants.
func (m *Manager) releaseLater(cache string, p vmGrants, whole bool) {
	longest := max(m.opts.Heartbeat, maxReleasePause)
	for wait := m.opts.Heartbeat; clock.Sleep(m.ctx, wait); wait = min(2*wait, longest) {
		if m.releaseVM(m.ctx, cache, p, whole) {
			_ = m.state.free(p.grants) // the manager ends if the store does
			return
		}
	}
}

// maxReleasePause is the maximum pause of releaseLater, unless heartbeats are less frequent.
const maxReleasePause = 30 * time.Second

// releaseVM terminates a VM that was launched for the cache and has no other grants. Any
// other VM's server disconnects the grants. A server that does not answer fails, unless it
// sends heartbeats and has other grants or is only slow: then releaseVM returns false. The
// end of ctx does not make a server fail.
func (m *Manager) releaseVM(ctx context.Context, cache string, p vmGrants, whole bool) bool {
	call, cancel := context.WithTimeout(ctx, terminateTimeout)
	defer cancel()
	if p.terminate {
		m.observe(p.vm, false)
		m.terminate(call, p.vm.id)
		return true
	}
	if whole {
		p.ids = []string{""} // all grants of the cache, also those of an earlier manager
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
			return false // it obeys another manager
		}
		if beats, used := m.state.beats(p.vm); beats && (used || connect.CodeOf(err) == connect.CodeDeadlineExceeded) {
			return false
		}
		m.fail(p.vm.id, p.vm, "does not answer")
		break
	}
	return true
}

// disconnect takes a grant, or all grants of a cache, back from a server. It is no error if
// the server has none, because the client never connected or has disconnected.
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
