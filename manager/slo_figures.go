package manager

import "github.com/redykv/redykv/internal/api/managerv1"

// CacheSLO is the SLO of a cache, with what its configuration is predicted to give with full queues,
// and what its client has measured in its latest window.
type CacheSLO struct {
	Cache     string   `json:"cache"` // id
	Asked     Figures  `json:"asked"` // at most that latency, at least that throughput; 0: unconstrained
	Predicted *Figures `json:"predicted,omitempty"`
	Reads     *Figures `json:"reads,omitempty"`
	Writes    *Figures `json:"writes,omitempty"`
	Broken    bool     `json:"broken"`
}

// Figures are a latency and a throughput.
type Figures struct {
	LatencyUs float64 `json:"latency_us"`               // mean
	P99Us     float64 `json:"p99_latency_us,omitempty"` // measured
	Mops      float64 `json:"mops"`
	InFlight  float64 `json:"in_flight,omitempty"` // measured
}

// SLOs returns the SLOs of all caches, by id, if the manager leads.
func (m *Manager) SLOs() []CacheSLO {
	l, err := m.leading()
	if err != nil {
		return nil
	}
	caches := l.state.describe().GetCaches()
	l.perform(caches...)
	all := make([]CacheSLO, 0, len(caches))
	for _, ca := range caches {
		s := CacheSLO{
			Cache: ca.GetId(), Asked: Figures{LatencyUs: ca.GetSlo().GetMaxLatencyUs(), Mops: ca.GetSlo().GetMinThroughputMops()},
			Reads: figuresOf(ca.GetMeasured().GetReads()), Writes: figuresOf(ca.GetMeasured().GetWrites()), Broken: ca.GetSloBroken(),
		}
		if p := ca.GetPredicted(); p != nil {
			s.Predicted = &Figures{LatencyUs: p.GetLatencyUs(), Mops: p.GetThroughputMops()}
		}
		all = append(all, s)
	}
	return all
}

func figuresOf(m *managerv1.Measured) *Figures {
	if m == nil {
		return nil
	}
	return &Figures{LatencyUs: m.GetMeanLatencyUs(), P99Us: m.GetP99LatencyUs(), Mops: m.GetThroughputMops(), InFlight: m.GetInFlight()}
}
