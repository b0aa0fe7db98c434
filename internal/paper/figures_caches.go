package paper

import (
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/server"
)

// Sections 2.2, 4.3 and 7.2: the data path.

// onHardware says what differs, which is why the testbed's absolute numbers are not claimed here.
const onHardware = "Redy's server is another process of this machine, over a transport of it with a modelled network, instead of another machine over InfiniBand; client and server share its processors, and the largest configuration has one client thread for every two processors (one in all at scale quick) instead of up to 30."

var (
	dataSizes = []int{4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10}
	both      = []cachebench.Op{cachebench.Read, cachebench.Write}
	unpinned  = redytier.Tuning{Pinning: redytier.PinNever}
	twoSided  = redytier.Tuning{TwoSided: true, Pinning: redytier.PinNever}
	withLocks = redytier.Tuning{TwoSided: true, Locks: true, Pinning: redytier.PinNever}
	pinned    = redytier.Tuning{Pinning: redytier.PinAlways}
)

var cacheTrials = []Trial{
	Caches{
		Name: "configurations", Mode: cachebench.Session, Ops: []cachebench.Op{cachebench.Write}, Sizes: []int{8}, Over: Variants,
		Variants: []CacheVariant{
			{Name: "latency-optimal", C: 1, S: 0, B: 1, Q: 1},
			{Name: "balanced", C: Many, S: Many, B: 16, Q: 4},
			{Name: "throughput-optimal", C: Many, S: Many, B: 512, Q: 16},
		},
	},
	Caches{
		Name: "optimisations", Mode: cachebench.Callback, Ops: []cachebench.Op{cachebench.Mixed}, Sizes: []int{8}, InFlight: 8, Over: Variants,
		Servers: server.PinNever, // variants with threads, before pinning is introduced
		Variants: []CacheVariant{
			{Name: "locks", C: 1, S: 1, B: 1, Q: 1, Tuning: withLocks},
			{Name: "lock-free", C: 1, S: 1, B: 1, Q: 1, Tuning: twoSided},
			{Name: "one-sided", C: 1, S: 0, B: 1, Q: 1, Tuning: unpinned},
			{Name: "queue depth 4", C: 1, S: 0, B: 1, Q: 4, Tuning: unpinned},
			{Name: "pinned", C: 1, S: 0, B: 1, Q: 4, Tuning: pinned},
			{Name: "queue depth 8", C: 1, S: 0, B: 1, Q: 8, Tuning: pinned},
		},
	},
	Caches{
		Name: "latency by size", Mode: cachebench.Session, Ops: both, Sizes: dataSizes, Over: Sizes,
		Variants: []CacheVariant{{Name: "Redy", C: 1, S: 0, B: 1, Q: 1}},
	},
	Caches{
		Name: "throughput by size", Mode: cachebench.Session, Ops: both, Sizes: dataSizes, Over: Sizes,
		Variants: []CacheVariant{
			{Name: "Redy, one-sided", C: Many, S: 0, B: 1, Q: 16},
			{Name: "Redy, batches", C: Many, S: Many, B: 0, Q: 16},
		},
	},
}

// variant is the value of a metric for the variant at that place of the trial.
func variant(series string, place int, metric string) At {
	return At{Series: series, X: float64(place), Metric: metric}
}

// step is the ratio of the values of two variants.
func step(metric string, to, from int) Quantity {
	return Ratio{variant("mixed", to, metric), variant("mixed", from, metric)}
}

var cacheFigures = []Figure{
	{
		Name: "fig3", Title: "The impact of the RDMA configuration", Section: "2.2", Trial: "configurations",
		Scaled: "Closed loops of 8-byte writes. " + onHardware,
		Charts: []Chart{
			{Kind: plot.Bars, Title: "Throughput", X: plot.Axis{Label: "configuration"}, Y: plot.Axis{Label: "million writes a second", Log: true}, Metric: "mops", Series: []string{"write"}},
			{Kind: plot.Bars, Title: "Mean latency", X: plot.Axis{Label: "configuration"}, Y: plot.Axis{Label: "µs", Log: true}, Metric: "mean_us", Series: []string{"write"}},
		},
		Claims: []Claim{
			{Q: "Q10", Text: "latency-optimal: latency", Paper: 4.1, Unit: "µs", Ours: variant("write", 0, "mean_us")},
			{Q: "Q10", Text: "latency-optimal: throughput", Paper: 1.2, Unit: "MOPS", Ours: variant("write", 0, "mops")},
			{Q: "Q12", Text: "balanced: latency", Paper: 14, Unit: "µs", Ours: variant("write", 1, "mean_us")},
			{Q: "Q12", Text: "balanced: throughput", Paper: 77, Unit: "MOPS", Ours: variant("write", 1, "mops")},
			{Q: "Q11", Text: "throughput-optimal: latency", Paper: 538, Unit: "µs", Ours: variant("write", 2, "mean_us")},
			{Q: "Q11", Text: "throughput-optimal: throughput", Paper: 205, Unit: "MOPS", Ours: variant("write", 2, "mops")},
			{Q: "Q10–Q12", Text: "the throughput-optimal configuration writes more than the latency-optimal one; no bound: the paper has up to 30 client threads", Paper: 205 / 1.2, Unit: "times",
				Ours: Ratio{variant("write", 2, "mops"), variant("write", 0, "mops")}},
			{Q: "Q10–Q12", Text: "and takes longer for each", Paper: 538 / 4.1, Unit: "times",
				Ours:     Ratio{variant("write", 2, "mean_us"), variant("write", 0, "mean_us")},
				Constant: "in a closed loop the latency is the number of pending requests, a constant of the configuration, over the throughput, which another claim judges"},
			{Q: "Q12", Text: "the balanced one lies in between in throughput; no bound, for the same reason", Paper: 77 / 1.2, Unit: "times the latency-optimal",
				Ours: Ratio{variant("write", 1, "mops"), variant("write", 0, "mops")}},
			{Q: "Q11–Q12", Text: "and below the throughput-optimal one, which has as many client threads here", Paper: 205.0 / 77, Unit: "times the balanced",
				Ours: Ratio{variant("write", 2, "mops"), variant("write", 1, "mops")}, Holds: nearPaper(205.0 / 77)},
		},
	},
	{
		Name: "fig7", Title: "What each optimisation does to latency", Section: "4.3", Trial: "optimisations",
		Scaled: "One application thread with eight pending requests, one client thread and, where two-sided, one server thread: three that poll, on the processors of this machine; they wait for each other in the kernel where there are fewer. " + onHardware,
		Charts: []Chart{{
			Kind: plot.Bars, Title: "Latency: median, and 99th percentile as a line", X: plot.Axis{Label: "each with those before it"}, Y: plot.Axis{Label: "µs", Log: true},
			Metric: "p50_us", Tail: "p99_us", Series: []string{"mixed", "raw mixed"},
		}},
		Claims: []Claim{
			{Q: "Q16", Text: "without locks the 99th percentile is lower", Paper: 7, Unit: "times", Ours: step("p99_us", 0, 1), Holds: nearPaper(7)},
			{Q: "Q17", Text: "one-sided: the median falls", Paper: 19.0 / 12, Unit: "times", Ours: step("p50_us", 1, 2), Holds: nearPaper(19.0 / 12)},
			{Q: "Q18", Text: "queue depth 4 instead of 1: the median falls", Paper: 12 / 7.1, Unit: "times", Ours: step("p50_us", 2, 3), Holds: nearPaper(12 / 7.1)},
			{Q: "Q20", Text: "pinned threads: the median falls", Paper: 7.1 / 5, Unit: "times", Ours: step("p50_us", 3, 4), Holds: nearPaper(7.1 / 5)},
			{Q: "Q20", Text: "all optimisations: median latency", Paper: 5, Unit: "µs", Ours: variant("mixed", 4, "p50_us")},
		},
	},
	{
		Name: "fig8", Title: "What each optimisation does to throughput", Section: "4.3", Trial: "optimisations",
		Scaled: "As figure 7. Of a closed loop the mean latency is the number of pending requests over this throughput, so figure 7 judges percentiles.",
		Charts: []Chart{{
			Kind: plot.Bars, Title: "Throughput", X: plot.Axis{Label: "each with those before it"}, Y: plot.Axis{Label: "million operations a second"}, Metric: "mops", Series: []string{"mixed"},
		}},
		Claims: []Claim{
			{Q: "Q16", Text: "without locks", Paper: 1.687, Unit: "times", Ours: step("mops", 1, 0), Holds: nearPaper(1.687)},
			{Q: "Q17", Text: "one-sided", Paper: 1.453, Unit: "times", Ours: step("mops", 2, 1), Holds: nearPaper(1.453)},
			{Q: "Q18", Text: "queue depth 4 instead of 1", Paper: 3.4, Unit: "times", Ours: step("mops", 3, 2), Holds: nearPaper(3.4)},
			{Q: "Q20", Text: "pinned threads", Paper: 1.52, Unit: "times", Ours: step("mops", 4, 3), Holds: nearPaper(1.52)},
			{Q: "Q19", Text: "queue depth 8 instead of 4: more throughput", Unit: "times", Ours: step("mops", 5, 4), Holds: AtLeast(1)},
			{Q: "Q20", Text: "all optimisations: throughput", Paper: 1.1, Unit: "MOPS", Ours: variant("mixed", 4, "mops")},
		},
	},
	{
		Name: "fig11", Title: "Latency of latency-optimal caches by record size", Section: "7.2", Trial: "latency by size",
		Scaled: "The transport alone, with one pending request, stands for nd_read_lat and nd_write_lat. " + onHardware,
		Charts: []Chart{
			{Kind: plot.Lines, Title: "Reads", X: plot.Axis{Label: "record size", Log: true, Bytes: true}, Y: plot.Axis{Label: "mean latency, µs"}, Metric: "mean_us", Series: []string{"Redy read", "raw read"}},
			{Kind: plot.Lines, Title: "Writes", X: plot.Axis{Label: "record size", Log: true, Bytes: true}, Y: plot.Axis{Label: "mean latency, µs"}, Metric: "mean_us", Series: []string{"Redy write", "raw write"}},
		},
		Claims: []Claim{
			{Q: "Q30", Text: "reads of 64 B take as long as on the raw network", Paper: 1, Unit: "times", Ours: overRaw("read", 64), Holds: AtMost(1.05)},
			{Q: "Q30", Text: "and so do writes", Paper: 1, Unit: "times", Ours: overRaw("write", 64), Holds: AtMost(1.05)},
			{Q: "Q30", Text: "latency of 64-byte reads", Paper: 3.5, Unit: "µs", Ours: At{Series: "Redy read", X: 64, Metric: "mean_us"}},
			{Q: "Q31", Text: "writes of 64 B, inlined, take less time than reads", Unit: "times", Constant: "the half microsecond that the network model takes off an inlined write",
				Ours: Ratio{At{Series: "Redy write", X: 64, Metric: "mean_us"}, At{Series: "Redy read", X: 64, Metric: "mean_us"}}},
			{Q: "Q32", Text: "the latency is low and steady up to 4 KB: 4 KB over 4 B", Unit: "times", Ours: bySize("read", 4<<10, 4), Constant: modelTime},
			{Q: "Q32", Text: "and rises significantly after: 16 KB over 4 KB", Unit: "times", Ours: bySize("read", 16<<10, 4<<10), Constant: modelTime},
		},
	},
	{
		Name: "fig12", Title: "Throughput of throughput-optimal and stranded-memory caches by record size", Section: "7.2", Trial: "throughput by size",
		Scaled: "Batches fill 4 KB, 16 of them are pending for each client thread; one-sided is what stranded memory, without server cores, allows. The transport alone stands for nd_read_bw and nd_write_bw: as many threads as Redy has client threads, each with one queue pair, as a client thread has, and with as many pending requests as that has batches. The network model bounds the outstanding reads of a queue pair. " + onHardware,
		Charts: []Chart{
			{Kind: plot.Lines, Title: "Reads", X: plot.Axis{Label: "record size", Log: true, Bytes: true}, Y: plot.Axis{Label: "million reads a second", Log: true}, Metric: "mops", Series: []string{"Redy, batches read", "Redy, one-sided read", "raw read"}},
			{Kind: plot.Lines, Title: "Writes", X: plot.Axis{Label: "record size", Log: true, Bytes: true}, Y: plot.Axis{Label: "million writes a second", Log: true}, Metric: "mops", Series: []string{"Redy, batches write", "Redy, one-sided write", "raw write"}},
		},
		Claims: []Claim{
			{Q: "Q33", Text: "16-byte reads", Paper: 200, Unit: "MOPS", Ours: At{Series: "Redy, batches read", X: 16, Metric: "mops"}},
			{Q: "Q33", Text: "16-byte writes", Paper: 200, Unit: "MOPS", Ours: At{Series: "Redy, batches write", X: 16, Metric: "mops"}},
			{Q: "Q33", Text: "16-byte reads over the raw network", Paper: 10, Unit: "times", Ours: batchesOverRaw("read", 16), Holds: nearPaper(10)},
			{Q: "Q33", Text: "16-byte writes over the raw network", Paper: 10, Unit: "times", Ours: batchesOverRaw("write", 16), Holds: nearPaper(10)},
			{Q: "Q34", Text: "up to 256 B Redy performs much better than the raw network", Unit: "times", Ours: Least{batchesOverRaw("read", 256), batchesOverRaw("write", 256)}, Holds: AtLeast(1.2)},
			{Q: "Q34", Text: "reads and writes have similar throughput at 16 B", Paper: 1, Unit: "times", Holds: Between(0.8, 1.25),
				Ours: Ratio{At{Series: "Redy, batches read", X: 16, Metric: "mops"}, At{Series: "Redy, batches write", X: 16, Metric: "mops"}}},
		},
	},
}

// modelTime is what gives the latency of one pending request, by its size.
const modelTime = "the network model's round trip and bandwidth"

func overRaw(op string, size float64) Quantity {
	return Ratio{At{Series: "Redy " + op, X: size, Metric: "mean_us"}, At{Series: "raw " + op, X: size, Metric: "mean_us"}}
}

func bySize(op string, large, small float64) Quantity {
	return Ratio{At{Series: "Redy " + op, X: large, Metric: "mean_us"}, At{Series: "Redy " + op, X: small, Metric: "mean_us"}}
}

func batchesOverRaw(op string, size float64) Quantity {
	return Ratio{At{Series: "Redy, batches " + op, X: size, Metric: "mops"}, At{Series: "raw " + op, X: size, Metric: "mops"}}
}
