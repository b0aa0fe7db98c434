// Package advisor chooses the sizes of a store's local memory, read cache and Redy cache: the cheapest
// ones with which a load gets the throughput or the latency that is asked for.
//
// A [missratio.Model] says where accesses would find their records, [Times] what an operation takes
// there, and [Prices] what the places cost.
package advisor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/missratio"
	"github.com/redykv/redykv/internal/units"
)

const (
	gib       = 1 << 30 // the unit of prices
	alignment = 4 << 10 // of the devices
	// leastMemory is the least memory of a log that is advised.
	leastMemory = 16 * alignment
)

// Prices are for a GiB and an hour, in any currency.
type Prices struct{ Memory, Redy, SSD float64 }

// Time is what an operation takes that finds its record in one place, in microseconds.
type Time struct {
	// Busy is the time of a thread for each operation at full load, with others under way: the inverse of
	// its throughput.
	Busy float64 `json:"busy_us"`
	// Latency is the mean time from an operation's begin to its end.
	Latency float64 `json:"latency_us"`
}

// Times are those of each place. Append is the busy time of a thread for each KiB that is appended to
// the log, and written to the device.
type Times struct {
	Memory Time    `json:"memory"`
	Cache  Time    `json:"cache"`
	Redy   Time    `json:"redy"`
	SSD    Time    `json:"ssd"`
	Append float64 `json:"append_us_per_kib"`
}

// Goal is what is asked for. 0 asks for nothing.
type Goal struct {
	Mops    float64 // 10^6 operations a second
	Latency float64 // mean, in microseconds
}

// Question is a question to the advisor.
type Question struct {
	Model   *missratio.Model
	Times   Times
	Prices  Prices
	Goal    Goal
	Threads int
	Data    int64 // bytes of the log on the SSD
	NoRedy  bool  // only memory and SSD
	// PageSize is that of the log, if the store exists; 0: a new store chooses it from its memory.
	PageSize int64
}

// Setting is a choice of sizes, and what is expected of it. Its JSON form is one line.
type Setting struct {
	What      string  `json:"what"`         // see the constants
	Memory    int64   `json:"memory_bytes"` // of the log
	ReadCache int64   `json:"read_cache_bytes"`
	Redy      int64   `json:"redy_bytes"`
	Cost      float64 `json:"cost_per_hour"`
	Mops      float64 `json:"predicted_mops"`
	Latency   float64 `json:"predicted_latency_us"`
	Meets     bool    `json:"meets"`

	InMemory float64 `json:"hit_memory"` // shares of reads
	InCache  float64 `json:"hit_cache"`
	InRedy   float64 `json:"hit_redy"`
	OnSSD    float64 `json:"hit_ssd"`
}

// What a setting is in an answer.
const (
	Advice   = "advice"
	Best     = "best"     // no setting meets the goal: the one that comes nearest
	Frontier = "frontier" // no other setting is as fast and as cheap
	// Steps from the advice.
	MoreMemory = "more memory"
	LessMemory = "less memory"
	MoreCache  = "more read cache"
	LessCache  = "less read cache"
	MoreRedy   = "more Redy"
	LessRedy   = "less Redy"
)

// Answer is the advice, the settings one step beside it, and those that are worth their price.
type Answer struct {
	Advice   Setting
	Steps    []Setting
	Frontier []Setting // by ascending cost
}

// cacheShares are the read caches that are tried, as shares of the local memory.
var cacheShares = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}

// check returns an error for a question without an answer.
func (q *Question) check() error {
	switch {
	case q.Model == nil:
		return errors.New("advisor: there is no model: no accesses were sampled")
	case q.Threads < 1:
		return fmt.Errorf("advisor: %d threads: want at least 1", q.Threads)
	case q.Goal.Mops <= 0 && q.Goal.Latency <= 0:
		return errors.New("advisor: neither a throughput nor a latency is asked for")
	case q.Prices.Memory < 0 || q.Prices.Redy < 0 || q.Prices.SSD < 0:
		return fmt.Errorf("advisor: prices %+v: want none below 0", q.Prices)
	}
	if err := q.Model.Check(); err != nil {
		return fmt.Errorf("advisor: %w", err)
	}
	return nil
}

// Ask answers a question.
func Ask(q Question) (*Answer, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	g := q.grid()
	all := make([]Setting, 0, len(g.memory)*len(cacheShares)*len(g.redy))
	for _, memory := range g.memory {
		for _, share := range cacheShares {
			if int64(float64(memory)*(1-share)) < leastMemory {
				continue
			}
			for _, redy := range g.redy {
				all = append(all, q.Predict(memory-int64(float64(memory)*share), int64(float64(memory)*share), redy))
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("advisor: %v of data: too little to advise on", units.Size(q.Data))
	}
	a := &Answer{Frontier: frontier(all)}
	a.Advice = q.choose(all)
	a.Steps = q.steps(a.Advice)
	return a, nil
}

// grid are the sizes that are tried.
type grid struct{ memory, redy []int64 }

func (q *Question) grid() grid {
	var g grid
	most := q.Data + q.Data/2
	for _, size := range q.Model.Curve() {
		g.memory = append(g.memory, size)
		if size > most {
			break // more memory than that holds no more records
		}
	}
	g.redy = []int64{0}
	for size := float64(q.Data) * 1.25; !q.NoRedy && size > float64(g.memory[0]); size /= math.Sqrt2 {
		g.redy = append(g.redy, int64(size))
	}
	slices.Sort(g.redy)
	return g
}

// Predict returns what is expected of a setting.
func (q *Question) Predict(memory, cache, redy int64) Setting {
	pages := cmp.Or(q.PageSize, int64(hlog.DefaultPageSize(memory, alignment)))
	at := q.Model.Predict(missratio.Setting{Memory: memory, Cache: cache, Tier: redy, PageSize: pages})
	t := &q.Times
	near, far := at.Tier+at.UpdatesTier, at.Beyond+at.UpdatesBeyond
	warm := max(1-at.Cache-near-far, 0)
	of := func(part func(Time) float64) float64 {
		return warm*part(t.Memory) + at.Cache*part(t.Cache) + near*part(t.Redy) + far*part(t.SSD)
	}
	busy := of(func(t Time) float64 { return t.Busy }) + q.Model.Growth(memory)/1024*t.Append
	s := Setting{
		Memory: memory, ReadCache: cache, Redy: redy,
		Cost:    (float64(memory+cache)*q.Prices.Memory + float64(redy)*q.Prices.Redy + float64(q.Data)*q.Prices.SSD) / gib,
		Mops:    float64(q.Threads) / max(busy, 1e-6),
		Latency: of(func(t Time) float64 { return t.Latency }),
	}
	if reads := at.Reads(); reads > 0 {
		s.InMemory, s.InCache, s.InRedy, s.OnSSD = at.Memory/reads, at.Cache/reads, at.Tier/reads, at.Beyond/reads
	}
	s.Meets = (q.Goal.Mops <= 0 || s.Mops >= q.Goal.Mops) && (q.Goal.Latency <= 0 || s.Latency <= q.Goal.Latency)
	return s
}

// choose returns the cheapest setting that meets the goal, or the one that comes nearest.
func (q *Question) choose(all []Setting) Setting {
	best := slices.MinFunc(all, func(a, b Setting) int {
		if a.Meets != b.Meets {
			return map[bool]int{true: -1, false: 1}[a.Meets]
		}
		if a.Meets {
			return cmp.Or(cmp.Compare(a.Cost, b.Cost), -cmp.Compare(a.Mops, b.Mops))
		}
		return cmp.Or(cmp.Compare(q.lacks(a), q.lacks(b)), cmp.Compare(a.Cost, b.Cost))
	})
	best.What = Advice
	if !best.Meets {
		best.What = Best
	}
	return best
}

// lacks returns how far a setting is from the goal, as a factor.
func (q *Question) lacks(s Setting) float64 {
	lack := 1.0
	if q.Goal.Mops > 0 {
		lack = max(lack, q.Goal.Mops/s.Mops)
	}
	if q.Goal.Latency > 0 {
		lack = max(lack, s.Latency/q.Goal.Latency)
	}
	return lack
}

// steps returns the settings that have more or less of one size: a fifth.
func (q *Question) steps(at Setting) []Setting {
	var steps []Setting
	add := func(what string, memory, cache, redy int64) {
		if memory < leastMemory {
			return
		}
		s := q.Predict(memory, cache, redy)
		s.What = what
		steps = append(steps, s)
	}
	const part = 5
	add(MoreMemory, at.Memory+at.Memory/part, at.ReadCache, at.Redy)
	add(LessMemory, at.Memory-at.Memory/part, at.ReadCache, at.Redy)
	add(MoreCache, at.Memory, at.ReadCache+max(at.ReadCache, at.Memory)/part, at.Redy)
	if at.ReadCache > 0 {
		add(LessCache, at.Memory, at.ReadCache-at.ReadCache/part, at.Redy)
	}
	if !q.NoRedy {
		add(MoreRedy, at.Memory, at.ReadCache, at.Redy+max(at.Redy, at.Memory)/part)
	}
	if at.Redy > 0 {
		add(LessRedy, at.Memory, at.ReadCache, at.Redy-at.Redy/part)
	}
	return steps
}

// frontier returns the settings that are faster than every cheaper one.
func frontier(all []Setting) []Setting {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Setting) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), -cmp.Compare(a.Mops, b.Mops))
	})
	var best []Setting
	for _, s := range sorted {
		if len(best) == 0 || s.Mops > best[len(best)-1].Mops*1.01 {
			s.What = Frontier
			best = append(best, s)
		}
	}
	return best
}
