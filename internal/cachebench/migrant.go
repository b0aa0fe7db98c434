package cachebench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/redytier"
)

// tickEvery is how often a migrant notes how far it is.
const tickEvery = 5 * time.Millisecond

// migrant is a client thread that keeps requests under way to each region of a
// cache: those to a region that is held keep no other from going on.
type migrant struct {
	spec    *MigrateSpec
	op      Op
	session *redytier.Session
	buffers []byte
	free    []uint64
	done    []device.Completion
	rng     *rand.PCG

	ended  atomic.Bool
	result chan error // of the loop
	// Of the loop, until it has ended.
	count uint64
	ticks []tick
}

// tick is how far the thread was at a time.
type tick struct {
	at    time.Time
	count uint64
	cpu   time.Duration
}

// startLoad starts a thread. Whoever gets it calls close.
func (s *MigrateSpec) startLoad(c *redytier.Cache, op Op) (*migrant, error) {
	depth := len(c.Regions()) * s.Depth
	session, err := c.NewSession(depth)
	if err != nil {
		return nil, err
	}
	m := &migrant{
		spec: s, op: op, session: session, buffers: make([]byte, depth*s.Size), done: make([]device.Completion, depth),
		rng: rand.NewPCG(1, 2), result: make(chan error, 1),
	}
	for tag := range uint64(depth) {
		m.free = append(m.free, tag)
	}
	go func() { m.result <- m.run() }()
	return m, nil
}

// stop ends the loop; what is under way then is still to be polled.
func (m *migrant) stop() error {
	m.ended.Store(true)
	err := <-m.result
	m.result <- err // for the next
	return err
}

func (m *migrant) close() error {
	_ = m.stop() // its error is known to who has not stopped it
	return m.session.Close()
}

func (m *migrant) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m.note(time.Now())
	for turn := 1; !m.ended.Load(); turn++ {
		if err := m.start(); err != nil {
			return err
		}
		n := m.session.Poll(m.done)
		for _, c := range m.done[:n] {
			if c.Err != nil {
				return c.Err
			}
			m.free = append(m.free, c.Tag)
		}
		m.count += uint64(n)
		if turn%16 == 0 {
			if now := time.Now(); now.Sub(m.ticks[len(m.ticks)-1].at) >= tickEvery {
				m.note(now)
			}
		}
	}
	return m.drain()
}

func (m *migrant) note(now time.Time) {
	m.ticks = append(m.ticks, tick{now, m.count, threadCPU()})
}

// start asks for as much as is free.
func (m *migrant) start() error {
	for _, tag := range m.free {
		buf, addr := m.buffers[int(tag)*m.spec.Size:][:m.spec.Size], m.spec.draw(m.rng, tag)
		var err error
		if m.op == Write {
			err = m.session.Write(buf, addr, tag)
		} else {
			err = m.session.Read(buf, addr, tag)
		}
		if err != nil {
			return err
		}
	}
	m.free = m.free[:0]
	return m.session.Submit()
}

// drain waits for what is under way.
func (m *migrant) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for len(m.free) < len(m.done) {
		if err := m.session.Wait(ctx); err != nil {
			return err
		}
		for _, c := range m.done[:m.session.Poll(m.done)] {
			m.free = append(m.free, c.Tag)
		}
	}
	return nil
}

// tell fills in what the load was before, while and after regions moved.
func (m *migrant) tell(row *MigrateRow, from, to time.Time) {
	first, last := 0, len(m.ticks)-1
	for i := range m.ticks {
		if m.ticks[i].at.Before(from) {
			first = i
		}
		if j := len(m.ticks) - 1 - i; m.ticks[j].at.After(to) {
			last = j
		}
	}
	// The first tenth of the load warms it up.
	row.Before = m.between(first/10, first)
	row.During = m.between(first, last)
	row.After = m.between(last, len(m.ticks)-1)
	if row.Before.Mops > 0 && row.Before.CPU > 0 && row.During.CPU > 0 {
		row.DuringOverBefore = row.During.Mops / row.Before.Mops
		row.PerCPU = row.DuringOverBefore * row.Before.CPU / row.During.CPU
	}
	row.MovesAt = first
	for i := 1; i < len(m.ticks); i++ {
		row.Series = append(row.Series, m.between(i-1, i).Mops)
	}
}

func (m *migrant) between(i, j int) Load {
	a, b := m.ticks[i], m.ticks[j]
	took := b.at.Sub(a.at).Seconds()
	if took <= 0 {
		return Load{}
	}
	return Load{Mops: float64(b.count-a.count) / took / 1e6, CPU: (b.cpu - a.cpu).Seconds() / took}
}
