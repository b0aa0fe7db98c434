package paper

import (
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/redytier"
)

// Sections 7.3 and 7.4: SLOs and migration. Section 2.1: stranded memory.

var sloTrials = []Trial{SLOs{Name: "slos", RecordSize: 64, QueueDepth: 16, Seed: 1}}

const sloScaled = "A model of this machine with one client core for the cache, built for this report; SLOs that no configuration of it meets are drawn anew, and the manager's margin is on. " + onHardware

func ofSLOs(metric string, part float64) Quantity {
	return Quantile{Series: sloSeries, Metric: metric, Part: part}
}

var sloFigures = []Figure{
	{
		Name: "fig13", Title: "The accuracy of satisfying latency SLOs", Section: "7.3", Trial: "slos", Scaled: sloScaled,
		Charts: []Chart{{
			Kind: plot.Steps, Title: "SLOs by latency", X: plot.Axis{Label: "mean latency, µs", Log: true}, Y: plot.Axis{Label: "share of the SLOs"},
			Lines: []Line{{"SLO", "slo_us"}, {"predicted", "predicted_us"}, {"measured", "measured_us"}},
		}},
		Claims: []Claim{
			{Q: "Q35", Text: "median of the predicted latency", Paper: 92, Unit: "µs", Ours: ofSLOs("predicted_us", 0.5)},
			{Q: "Q35", Text: "median of the measured latency", Paper: 98, Unit: "µs", Ours: ofSLOs("measured_us", 0.5)},
			{Q: "Q35", Text: "95th percentile of the predicted latency", Paper: 206, Unit: "µs", Ours: ofSLOs("predicted_us", 0.95)},
			{Q: "Q35", Text: "95th percentile of the measured latency", Paper: 212, Unit: "µs", Ours: ofSLOs("measured_us", 0.95)},
			{Q: "Q35", Text: "all measured latencies are below the SLO: share that is", Paper: 1, Unit: "", Ours: Mean{sloSeries, "latency_kept"}, Holds: AtLeast(0.95), Because: sloBecause},
			{Q: "Q35", Text: "predicted and measured medians are close: measured over predicted", Paper: 98.0 / 92, Unit: "times", Holds: Between(0.8, 1.25),
				Ours: Ratio{ofSLOs("measured_us", 0.5), ofSLOs("predicted_us", 0.5)}, Because: sloBecause},
			{Q: "Q37", Text: "average client cores", Paper: 7.3, Unit: "cores", Ours: Mean{sloSeries, "client_cores"}},
			{Q: "Q37", Text: "average server cores", Paper: 1.5, Unit: "cores", Ours: Mean{sloSeries, "server_cores"}},
			{Q: "Q38", Text: "average time of a search", Paper: 27000, Unit: "µs", Ours: Mean{sloSeries, "search_us"}, Holds: AtMost(27000)},
			{Q: "Q38", Text: "median time of a search", Paper: 10000, Unit: "µs", Ours: ofSLOs("search_us", 0.5), Holds: AtMost(10000)},
		},
	},
	{
		Name: "fig14", Title: "The accuracy of satisfying throughput SLOs", Section: "7.3", Trial: "slos", Scaled: sloScaled,
		Charts: []Chart{{
			Kind: plot.Steps, Title: "SLOs by throughput", X: plot.Axis{Label: "million operations a second", Log: true}, Y: plot.Axis{Label: "share of the SLOs"},
			Lines: []Line{{"SLO", "slo_mops"}, {"predicted", "predicted_mops"}, {"measured", "measured_mops"}},
		}},
		Claims: []Claim{
			{Q: "Q36", Text: "median of the SLOs", Paper: 110.4, Unit: "MOPS", Ours: ofSLOs("slo_mops", 0.5)},
			{Q: "Q36", Text: "median of the predictions", Paper: 110.5, Unit: "MOPS", Ours: ofSLOs("predicted_mops", 0.5)},
			{Q: "Q36", Text: "median measured", Paper: 110.7, Unit: "MOPS", Ours: ofSLOs("measured_mops", 0.5)},
			{Q: "Q36", Text: "95th percentile of the SLOs", Paper: 211.4, Unit: "MOPS", Ours: ofSLOs("slo_mops", 0.95)},
			{Q: "Q36", Text: "95th percentile of the predictions", Paper: 211.5, Unit: "MOPS", Ours: ofSLOs("predicted_mops", 0.95)},
			{Q: "Q36", Text: "95th percentile measured", Paper: 219.3, Unit: "MOPS", Ours: ofSLOs("measured_mops", 0.95)},
			{Q: "Q36", Text: "the throughput reaches the SLO, to within 5 %: share that does", Paper: 1, Ours: Mean{sloSeries, "throughput_kept"}, Holds: AtLeast(0.95), Because: sloBecause},
			{Q: "Q36", Text: "predicted and measured medians are close: measured over predicted", Paper: 110.7 / 110.5, Unit: "times", Holds: Between(0.8, 1.25),
				Ours: Ratio{ofSLOs("measured_mops", 0.5), ofSLOs("predicted_mops", 0.5)}, Because: sloBecause},
		},
	},
}

const sloBecause = "Others use this machine's processors: a cache that is measured some minutes after its model was meets other neighbours."

const idleSeries = "idle"

var moveTrials = []Trial{
	Moves{
		Name: "reads while regions move", Op: cachebench.Read, Size: 8, Rate: 20_000, Moving: []int{1, 2, 4},
		Ways: []Way{
			{Series: "unpaused reads"},
			{Series: "without optimisation", Migration: redytier.Migration{PauseReads: true, PauseAll: true}},
			{Series: idleSeries, Idle: true},
		},
	},
	Moves{
		Name: "writes while regions move", Op: cachebench.Write, Size: 8, Rate: 20_000, Moving: []int{1, 2, 4},
		Ways: []Way{
			{Series: "pause-on-migration writes"},
			{Series: "without optimisation", Migration: redytier.Migration{PauseReads: true, PauseAll: true}},
		},
	},
}

const movesScaled = "Seven regions, each on a VM of its own, so that one, two and four can move; every region is offered 20000 requests a second, so that what is held costs its share of the throughput, as it does where each request waits for a network. The copying is slowed down at the smallest scale, so that it can be seen; what a plain copy of as many bytes beside the same load costs is in the data (beside_of_before): on few processors any copy takes its part of them, and the last claim is against that. " + onHardware

// moveClaims returns the claims of figure 15 or 16.
func moveClaims(q, optimised string, most float64, text, because string) []Claim {
	during := func(series string, moving float64) At {
		return At{Series: series, X: moving, Metric: "drop_percent"}
	}
	beside := func(moving float64) At {
		return At{Series: optimised, X: moving, Metric: "drop_beside_percent"}
	}
	var claims []Claim
	for _, c := range []struct {
		q            string
		moving, drop float64
	}{{"Q41", 1, 15}, {"Q41", 2, 25}, {"Q41", 4, 57}} {
		share := 100 * c.moving / sevenRegions
		claims = append(claims, Claim{
			Q: c.q, Text: "without optimisation the throughput drops: " + regions(c.moving) + " moving", Paper: c.drop, Unit: "%",
			Ours: during("without optimisation", c.moving), Holds: Between(share-6, share+6),
			Because: "The client has to share its processor with the copying, and with whoever else uses this machine: cpu_during in the data tells how much it had.",
		})
	}
	return append(claims, Claim{
		Q: q, Text: text, Paper: most, Unit: "%", Holds: AtMost(most), Because: because,
		Ours: Most{during(optimised, 1), during(optimised, 2), during(optimised, 4)},
	}, Claim{
		Q: "goal", Text: "and against a plain copy of as many bytes in as much time, instead of undisturbed", Unit: "%", Holds: AtMost(most), Because: because,
		Ours: Most{beside(1), beside(2), beside(4)},
	})
}

func regions(n float64) string {
	return map[float64]string{1: "one region", 2: "two regions", 4: "four regions"}[n]
}

var moveFigures = []Figure{
	{
		Name: "fig15", Title: "The impact of region migration on reads", Section: "7.4", Trial: "reads while regions move", Scaled: movesScaled,
		Charts: moveCharts,
		Claims: append(moveClaims("Q42", "unpaused reads", 5, "unpaused reads are not affected: the largest drop", "On few processors the copying competes with the client for them; the share that a plain copy of the same bytes takes is in the data (beside_of_before)."),
			Claim{Q: "Q39", Text: "time to move 1 GB (here: of a cache that nobody uses)", Paper: 1.09, Unit: "s", Ours: At{Series: idleSeries, X: 1, Metric: "gigabyte_s"}, Holds: AtMost(1.09), Because: storeBecause}),
	},
	{
		Name: "fig16", Title: "The impact of region migration on writes", Section: "7.4", Trial: "writes while regions move", Scaled: movesScaled,
		Charts: moveCharts,
		Claims: moveClaims("Q43", "pause-on-migration writes", 15, "pause-on-migration writes lose at most a region's share: the largest drop", "Beside the one region in seven that is held, the copying takes its part of the processors."),
	},
}

var moveCharts = []Chart{
	{Kind: plot.Course, Title: "Throughput while four regions move", X: plot.Axis{Label: "seconds from the first pause"}, Y: plot.Axis{Label: "of that before"}},
	{Kind: plot.Lines, Title: "Drop of the throughput while regions move", X: plot.Axis{Label: "regions that move, of seven"}, Y: plot.Axis{Label: "%"}, Metric: "drop_percent"},
}

var strandTrials = []Trial{Strands{Name: "stranded", Seed: 1}}

const strandBecause = "The trace is synthetic, of one small cluster: it shows that the figures can be drawn from a trace, not what a cloud is like."

func gb(tb float64) float64 { return tb * 1024 }

var strandFigures = []Figure{{
	Name: "stranded", Title: "Stranded memory: figures 1 and 2", Section: "2.1", Trial: "stranded",
	Scaled: "SYNTHETIC unless a trace of VMs is given: generated from a seed, in the schema of the Azure public data set, which does not name servers; VMs are placed by best fit on one cluster. The paper's numbers are of 100 clusters of a cloud.",
	Charts: []Chart{
		{Kind: plot.Steps, Title: "Figure 1: stranded memory that a server can reach", X: plot.Axis{Label: "GB", Log: true}, Y: plot.Axis{Label: "share of the servers"},
			Lines: []Line{{"1 switch", "reach1_gb"}, {"3 switches", "reach3_gb"}, {"5 switches", "reach5_gb"}}},
		{Kind: plot.Steps, Title: "Figure 2: duration of stranding events", X: plot.Axis{Label: "minutes", Log: true}, Y: plot.Axis{Label: "share of the events"},
			Lines: []Line{{"events", "minutes"}}},
		{Kind: plot.Steps, Title: "Memory that is not allocated", X: plot.Axis{Label: "% of the cluster's memory"}, Y: plot.Axis{Label: "share of the time"},
			Lines: []Line{{"unallocated", "unallocated_percent"}, {"stranded", "stranded_percent"}}},
	},
	Claims: []Claim{
		{Q: "Q5", Text: "diurnal peak to trough of unallocated memory", Paper: 2, Unit: "times", Ours: Mean{clusterSeries, "peak_to_trough"}},
		{Q: "Q6", Text: "unallocated memory, median", Paper: 46, Unit: "%", Ours: Quantile{clusterSeries, "unallocated_percent", 0.5}},
		{Q: "Q7", Text: "stranded memory, median", Paper: 8, Unit: "%", Ours: Quantile{clusterSeries, "stranded_percent", 0.5}},
		{Q: "Q7", Text: "stranded memory, 90th percentile", Paper: 16, Unit: "%", Ours: Quantile{clusterSeries, "stranded_percent", 0.9}},
		{Q: "Q7", Text: "stranded memory, 99th percentile", Paper: 23, Unit: "%", Ours: Quantile{clusterSeries, "stranded_percent", 0.99}},
		{Q: "Q8", Text: "half of all servers reach, through 1 switch", Paper: gb(1), Unit: "GB", Ours: Quantile{serverSeries, "reach1_gb", 0.5}},
		{Q: "Q8", Text: "half of all servers reach, through 3 switches", Paper: gb(30), Unit: "GB", Ours: Quantile{serverSeries, "reach3_gb", 0.5}},
		{Q: "Q8", Text: "half of all servers reach, through 5 switches", Paper: gb(100), Unit: "GB", Ours: Quantile{serverSeries, "reach5_gb", 0.5}},
		{Q: "Q9", Text: "stranding events, 25th percentile", Paper: 6, Unit: "min", Ours: Quantile{eventSeries, "minutes", 0.25}},
		{Q: "Q9", Text: "stranding events, median", Paper: 13, Unit: "min", Ours: Quantile{eventSeries, "minutes", 0.5}, Holds: Between(5, 60), Because: strandBecause},
		{Q: "Q9", Text: "stranding events, 75th percentile", Paper: 22, Unit: "min", Ours: Quantile{eventSeries, "minutes", 0.75}},
		{Q: "Q8", Text: "servers reach more through more switches: 5 over 1", Paper: 100, Unit: "times", Holds: AtLeast(2), Because: strandBecause,
			Ours: Ratio{Quantile{serverSeries, "reach5_gb", 0.5}, Quantile{serverSeries, "reach1_gb", 0.5}}},
	},
}}
