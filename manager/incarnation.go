package manager

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/controltoken"
)

// beginEpoch gives this run of the manager its name, by which servers tell it from those
// before it, and from another one on a copy of its state. The epoch is stored before any
// server hears it. It is also a time, so that a manager whose state was lost, or that has
// none, is newer than those before it.
func (m *Manager) beginEpoch() error {
	c := m.catalog
	m.self = controltoken.Incarnation{
		Epoch: max(c.earlier.epoch+1, uint64(time.Now().UnixMicro())), ID: rand.Text(), Bound: max(m.opts.Silence, m.opts.Lease),
	}
	if c.store == nil {
		return nil
	}
	return c.store.apply(map[string][]byte{epochKey: binary.BigEndian.AppendUint64(nil, m.self.Epoch)})
}

// incarnation is what servers are told.
func (m *Manager) incarnation() *managerv1.Incarnation {
	return &managerv1.Incarnation{Epoch: m.self.Epoch, Id: m.self.ID, BoundMs: m.self.Bound.Milliseconds()}
}

// incarnationOf is the manager that has answered a server.
func incarnationOf(p *managerv1.Incarnation) controltoken.Incarnation {
	bound := min(max(0, p.GetBoundMs()), maxBound.Milliseconds())
	return controltoken.Incarnation{Epoch: p.GetEpoch(), ID: p.GetId(), Bound: time.Duration(bound) * time.Millisecond}
}

// maxBound is the most that a server waits for one manager before it obeys another.
const maxBound = 24 * time.Hour
