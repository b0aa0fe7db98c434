package manager

import (
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// observe tells the predictor that a spot VM's life has ended: it was reclaimed, or given
// back. The first call for a VM counts, as its termination may have to be repeated. v may be nil.
func (l *leader) observe(v *vm, reclaimed bool) {
	if v == nil {
		return
	}
	l.state.mu.Lock()
	first, kind, started := v.runsOnSpot(), v.kind(), v.Started
	v.observed = v.observed || first
	l.state.mu.Unlock()
	if first {
		l.opts.Predictor.Observe(kind, l.opts.now().Sub(started), reclaimed)
		_ = l.state.put(&l.state.learnt, v) // the leader ends if the catalog does
	}
}

// runsOnSpot reports whether a launched VM is a spot VM whose end has not been observed. A VM that
// an operator reclaims, or that fails, tells nothing of its provider. Called under mu.
func (v *vm) runsOnSpot() bool {
	return v.launched && v.Spot && !v.Started.IsZero() && !v.observed && v.leaves.IsZero() && v.failed == ""
}

// alive returns for each kind the sum of the lifetimes of its spot VMs that still run.
func (c *state) alive(now time.Time) map[menu.Kind]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[menu.Kind]time.Duration)
	for v := range pieces(c, c.vms) {
		if v.runsOnSpot() {
			all[v.kind()] += max(0, now.Sub(v.Started))
		}
	}
	return all
}

// remember stores the measurements. If that fails, the leader ends.
func (l *leader) remember() { _ = l.state.put(&l.state.learnt) }

// learnt returns the measurements to store.
func (m *Manager) learnt() *catalogv1.Learnt {
	p := &catalogv1.Learnt{Moves: m.rates.learnt()}
	p.Calibrations, p.Corrections = m.search.learnt()
	if l, ok := m.opts.Predictor.(allocator.Learner); ok {
		for _, life := range l.Lives() {
			p.Lives = append(p.Lives, &catalogv1.Lives{
				Type: life.Kind.Type, CloudRegion: life.Kind.CloudRegion, Distance: uint32(life.Kind.Distance),
				LivedMs: life.Lived.Milliseconds(), Reclaimed: uint32(life.Reclaimed),
			})
		}
	}
	return p
}

// relearn restores stored measurements.
func (m *Manager) relearn(p *catalogv1.Learnt) {
	m.rates.relearn(p.GetMoves())
	m.search.relearn(p, m.opts.now())
	if l, ok := m.opts.Predictor.(allocator.Learner); ok {
		var all []allocator.Life
		for _, life := range p.GetLives() {
			all = append(all, allocator.Life{
				Kind:  menu.Kind{Type: life.GetType(), CloudRegion: life.GetCloudRegion(), Distance: int(life.GetDistance()), Spot: true},
				Lived: time.Duration(life.GetLivedMs()) * time.Millisecond, Reclaimed: int(life.GetReclaimed()),
			})
		}
		l.RestoreLives(all)
	}
}

// up returns a registered VM, or nil.
func (c *state) up(id string) *vm {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[id]; v != nil && v.ControlURL != "" {
		return v
	}
	return nil
}

// kindOf returns the kind of an offer in a cloud region.
func kindOf(o plan.Offer, region string) menu.Kind {
	return menu.Kind{Type: o.Type, CloudRegion: region, Distance: o.Distance, Spot: o.Spot}
}

// kind returns the kind of a launched VM.
func (v *vm) kind() menu.Kind {
	return menu.Kind{Type: v.Type, CloudRegion: v.CloudRegion, Distance: int(v.Distance), Spot: v.Spot}
}
