package server

import "time"

// sweepEvery is the interval of sweeps.
const sweepEvery = time.Second

// sweepLoop sweeps until the server closes. Time in which this process is stopped is not a
// client's silence: a late sweep counts as two.
func (s *Server) sweepLoop() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		now := time.Now()
		s.sweep(min(now.Sub(last), 2*sweepEvery))
		last = now
	}
}

// sweep notes how long clients are silent, and takes back the grants whose terms allow no more:
// no connection was open, no pull ran, and neither a call nor a dialled connection had the
// grant's ticket or token. elapsed is the time since the sweep before. A grant may stay for two
// sweeps longer, but never for less.
func (s *Server) sweep(elapsed time.Duration) {
	var silent []*grant
	s.mu.Lock()
	for _, g := range s.grants {
		if s.closed || !g.lent || g.over {
			continue
		}
		if g.silent += elapsed; g.heard || g.inUse() {
			g.heard, g.silent = false, 0
		}
		if g.keep > 0 && g.silent >= g.keep {
			s.markOver(g)
			silent = append(silent, g)
		}
	}
	s.mu.Unlock()
	for _, g := range silent {
		s.counts.expired.Add(1)
		s.opts.Logger.Warn("grant is taken back: its client is silent", "cache", g.id.cache, "grant", g.id.grant, "for", g.keep)
		if err := s.finish(g); err != nil {
			s.opts.Logger.Error("regions not freed", "err", err)
		}
	}
}

// inUse reports whether a grant has a connection or a pull.
func (g *grant) inUse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.connections) > 0 || len(g.pulls) > 0
}
