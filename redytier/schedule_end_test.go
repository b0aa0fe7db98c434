package redytier

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/fabric"
)

func wordOf(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// fabricAddr returns the address of a VM's memory; empty: it has not started.
func (c *scheduleCloud) fabricAddr(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.running[id]; v != nil && v.server != nil {
		return v.server.FabricAddr()
	}
	return ""
}

// Times of the end of a run.
const (
	healing = 20 * time.Minute // for the cache to answer again, on VMs that stay
	resting = 20 * time.Minute // for the manager and the servers to find what nobody uses
)

// eventually waits until a condition, which returns what is missing, holds.
func (p *schedulePlay) eventually(d time.Duration, what string, missing func() string) {
	for end := time.Now().Add(d); p.fine(); time.Sleep(time.Second) {
		text := missing()
		if text == "" {
			return
		}
		if time.Now().After(end) {
			p.fail("%v after the last step %s: %s", d, what, text)
		}
	}
}

// heal ends all faults, and waits until the cache answers again. Then whatever the application
// asks for must succeed.
func (p *schedulePlay) heal() {
	p.note("all faults end")
	p.mu.Lock()
	p.faults = nil
	p.mu.Unlock()
	p.fabric.faults(fabric.FaultOptions{})
	p.eventually(healing, "not all regions are stable", p.unstable)
	p.eventually(healing, "a reclaimed VM is not left", func() string {
		leaves := p.cloud.vms()
		for _, r := range p.cache.Regions() {
			if at, ok := leaves[r.VM]; !ok || !at.IsZero() {
				return fmt.Sprintf("%+v", r)
			}
		}
		return ""
	})
	for _, s := range []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"a Migrate", func(ctx context.Context) error { return p.cache.Migrate(ctx, p.cache.Regions()[0].VM) }},
		{"a Reshape", func(ctx context.Context) error { return p.cache.Reshape(ctx, p.setup.capacity, scheduleSLOs[1]) }},
		{"a Reconfigure", func(ctx context.Context) error { return p.cache.Reconfigure(ctx, configurations[1]) }},
	} {
		p.eventually(healing, "fails "+s.what, func() string {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			if err := s.do(ctx); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// unstable returns what is wrong with the cache's regions.
func (p *schedulePlay) unstable() string {
	if err := p.cache.Err(); err != nil {
		return err.Error()
	}
	for _, r := range p.cache.Regions() {
		if r.State != Stable || r.Target != "" {
			return fmt.Sprintf("%+v", r)
		}
	}
	return ""
}

// end checks that the manager and the servers know the memory that the cache uses and no other,
// and that after its end nothing is left.
func (p *schedulePlay) end() {
	p.eventually(resting, "others than the cache have memory", p.disagreement)
	if p.fine() { // it may have been so by chance, while something changed
		time.Sleep(time.Minute)
		if text := p.disagreement(); text != "" {
			p.fail("a minute after all agreed: %s", text)
		}
	}
	deleted := make(chan error, 1)
	go func() { deleted <- p.cache.Delete(context.Background()) }()
	select {
	case err := <-deleted:
		if err != nil {
			p.fail("Delete: %v", err)
		}
	case <-time.After(mayTake):
		p.fail("Delete does not return")
	}
	p.eventually(resting, "after Delete something is left", func() string {
		known, err := p.known()
		if err != nil {
			return err.Error()
		}
		if n := len(known.GetCaches()); n > 0 {
			return fmt.Sprintf("%d caches", n)
		}
		if lent := p.cloud.lent(); len(lent) > 0 || len(known.GetVms()) > 0 {
			return fmt.Sprintf("VMs %v, of which the manager knows %v", lent, known.GetVms())
		}
		return ""
	})
	p.close()
}

// disagreement returns a difference between the memory that the cache uses, the manager's
// record and what the servers lend.
func (p *schedulePlay) disagreement() string {
	known, err := p.known()
	if err != nil {
		return err.Error()
	}
	uses := map[string]uint64{} // bytes by VM
	for _, r := range p.cache.Regions() {
		uses[r.VM] += uint64(p.setup.region)
	}
	if len(known.GetCaches()) != 1 || known.GetCaches()[0].GetId() != p.cache.ID() {
		return fmt.Sprintf("the cache is %s, the manager's are %v", p.cache.ID(), known.GetCaches())
	}
	granted := map[string]uint64{}
	for _, g := range known.GetCaches()[0].GetGrants() {
		granted[g.GetVm().GetId()] += uint64(g.GetRegions()) * uint64(p.setup.region)
	}
	lent := map[string]uint64{}
	for vm, caches := range p.cloud.lent() {
		for cache, n := range caches {
			if cache != p.cache.ID() {
				return fmt.Sprintf("VM %s lends %d bytes to cache %s, the cache is %s", vm, n, cache, p.cache.ID())
			}
			lent[vm] += n
		}
		if _, ok := uses[vm]; !ok {
			return fmt.Sprintf("VM %s runs for nobody", vm)
		}
	}
	if !sameBytes(uses, granted) || !sameBytes(uses, lent) {
		return strings.Join([]string{fmt.Sprint("the cache uses ", uses), fmt.Sprint("its manager grants ", granted), fmt.Sprint("the servers lend ", lent)}, "; ")
	}
	return ""
}

func sameBytes(a, b map[string]uint64) bool {
	for vm, n := range a {
		if b[vm] != n {
			return false
		}
	}
	return len(a) == len(b)
}

// takeBack makes a VM's server end its grants, as for a client that it has not heard.
func (c *scheduleCloud) takeBack(t *testing.T, id string) {
	t.Helper()
	c.mu.Lock()
	v := c.running[id]
	c.mu.Unlock()
	status, err := v.server.Status(t.Context(), connect.NewRequest(&serverv1.StatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range status.Msg.GetGrants() {
		if _, err := v.server.Disconnect(t.Context(), connect.NewRequest(&serverv1.DisconnectRequest{CacheId: g.GetCacheId(), Grant: g.GetId()})); err != nil {
			t.Error(err)
		}
	}
}
