package cache

import (
	"slices"
	"testing"
	"time"
)

// All regions but the moving one are lent, by all servers but its own.
func TestSparseLends(t *testing.T) {
	for _, c := range []struct{ regions, servers int }{{3, 2}, {1024, 256}, {2047, 1024}, {10, 3}, {1000, 7}} {
		s := SparseSpec{Capacity: int64(c.regions) << 30, RegionSize: 1 << 30, Servers: c.servers, Threads: 1, Sessions: 1, Rounds: 1, Lease: time.Second}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		sum := 0
		lends := s.lends()
		for _, n := range lends {
			if n < 1 {
				t.Errorf("%+v: a server lends %d regions", c, n)
			}
			sum += n
		}
		if len(lends) != c.servers-1 || sum != c.regions-1 || slices.Max(lends) > slices.Min(lends)+1 {
			t.Errorf("%+v: servers lend %v", c, lends)
		}
	}
}

func TestSparseSpecIsChecked(t *testing.T) {
	good := SparseSpec{Capacity: 1 << 40, RegionSize: 1 << 30, Servers: 256, Threads: 30, Sessions: 30, Rounds: 1, Lease: time.Second}
	for name, change := range map[string]func(*SparseSpec){
		"part of a region": func(s *SparseSpec) { s.Capacity++ },
		"no capacity":      func(s *SparseSpec) { s.Capacity = 0 },
		"small regions":    func(s *SparseSpec) { s.RegionSize = 512 },
		"one server":       func(s *SparseSpec) { s.Servers = 1 },
		"too many servers": func(s *SparseSpec) { s.Servers = 1025 },
		"no threads":       func(s *SparseSpec) { s.Threads = 0 },
		"no sessions":      func(s *SparseSpec) { s.Sessions = 0 },
		"no rounds":        func(s *SparseSpec) { s.Rounds = 0 },
		"short lease":      func(s *SparseSpec) { s.Lease = time.Millisecond },
	} {
		s := good
		if change(&s); s.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
