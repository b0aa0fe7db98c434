package server

import "sync/atomic"

// Metrics counts what a server has done since it started. One-sided reads and
// writes pass it by and are not counted.
type Metrics struct {
	Batches   uint64 // request batches carried out
	Requests  uint64 // requests in them
	Refused   uint64 // requests outside the lease's regions, answered with an error
	Malformed uint64 // connections ended for what they sent
	Rejected  uint64 // queue pairs refused when they dialled
	Pulled    uint64 // bytes copied from other servers
}

type counters struct {
	batches, requests, refused, malformed, rejected, pulled atomic.Uint64
}

// Metrics returns the counts; safe for concurrent use.
func (s *Server) Metrics() Metrics {
	malformed := s.counts.malformed.Load()
	if p, ok := s.provider.(interface{ Malformed() uint64 }); ok {
		malformed += p.Malformed() // what never came as far as this package
	}
	return Metrics{
		Batches:   s.counts.batches.Load(),
		Requests:  s.counts.requests.Load(),
		Refused:   s.counts.refused.Load(),
		Malformed: malformed,
		Rejected:  s.counts.rejected.Load(),
		Pulled:    s.counts.pulled.Load(),
	}
}
