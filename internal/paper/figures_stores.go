package paper

import (
	"fmt"

	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/ycsb"
)

// Section 8.3: a store on Redy, an SSD and a file server.

// tieredSeries is the series of the store with Redy's memory before the SSD, at any size of
// that memory.
const tieredSeries = "tiered"

// hotShare is the share of local memory that holds frequently read records in skewed
// workloads. A workload that only reads moves no records to the log's tail (A53).
const hotShare = 0.75

var (
	threeDevices = []ycsb.Device{ycsb.Redy, ycsb.SSD, ycsb.SMB}
	tierDevices  = []ycsb.Device{ycsb.Redy}
	tierCaches   = []float64{0, 2, 4, 6, 8} // GB
	threadCounts = []int{1, 2, 4}
)

const storeScaled = "Sizes keep the paper's proportions to the database (250 million records) and shrink with it. Redy's memory is another process's, over the transport and the network model named below. SMB is a Samba server on this machine with its share in memory, not SMB Direct. The store's index, which is beside the local memory, and the local memory are the same for all devices: one store, whose log lies on each of them, is read from one after the other. A bound on a ratio to SSD or SMB is of the disk and the file server of the machine that it was recorded on: a faster disk, such as one on NVMe, makes the claim fail for the disk's sake."

// smallScaled is about figures 18a to 18c, which are of one trial.
const smallScaled = " The stores of figures 18a and 18b are loaded one after the other, in the other order in every second round. The store of figure 18c is that of 18b with less memory, always measured after it: before it, it would have to be loaded once more."

// throughput returns a chart of million reads per second over the labelled variable, and one of
// latency, of a store.
func throughput(label, store string) []Chart {
	var series []string
	if store != "" {
		for _, d := range threeDevices {
			series = append(series, seriesOf(d, store))
		}
	}
	return []Chart{
		{Kind: plot.Lines, Title: "Throughput", X: plot.Axis{Label: label}, Y: plot.Axis{Label: "million reads a second", Log: true}, Metric: "mops", Series: series},
		{Kind: plot.Lines, Title: "Latency, 99th percentile", X: plot.Axis{Label: label}, Y: plot.Axis{Label: "µs", Log: true}, Metric: "p99_us", Series: series},
	}
}

// seriesOf is the series of a store on a device; the only store of a trial has no name.
func seriesOf(device ycsb.Device, store string) string {
	return Stores{}.series(Store{Name: store}, device)
}

// mops is the throughput of a store on a device.
func mops(device ycsb.Device, store string, x float64) At {
	return At{Series: seriesOf(device, store), X: x, Metric: "mops"}
}

// times is the ratio of a store's throughput on Redy to that on a device.
func times(device ycsb.Device, store string, x float64) Quantity {
	return Ratio{mops(ycsb.Redy, store, x), mops(device, store, x)}
}

// The stores of figures 18a to 18c.
const (
	uniformStore = "uniform"
	zipfStore    = "Zipf, 1 GB"
	tightStore   = "Zipf, 0.1 GB"
)

// zipfFigure returns one of the figures 18e to 18h, with its trial.
func zipfFigure(letter string, local float64) (Stores, Figure) {
	t := Stores{
		Name: "fig18" + letter, Value: largeValue, Devices: threeDevices, Threads: threadCounts,
		Stores: []Store{{Distribution: ycsb.Zipfian, ReadCache: hotShare, Memory: local}}, Cache: []float64{largeCache}, Vary: Threads,
	}
	return t, Figure{
		Name: t.Name, Title: fmt.Sprintf("YCSB, Zipf, 1 KB values, %g GB of local memory", local), Section: "8.3", Trial: t.Name,
		Scaled: storeScaled, Charts: throughput("threads", ""),
		Claims: []Claim{
			{Q: "Q51", Text: "with four threads Redy over SSD: at least twice in the paper", Paper: 2, Unit: "times", Ours: times(ycsb.SSD, "", 4), Own: true},
			{Q: "Q51", Text: "with four threads Redy over SMB: at least twice in the paper", Paper: 2, Unit: "times", Ours: times(ycsb.SMB, "", 4), Own: true},
		},
	}
}

var storeTrials, storeFigures = func() (trials []Trial, figures []Figure) {
	add := func(t Stores, some ...Figure) {
		trials = append(trials, t)
		for _, f := range some {
			f.Trial, f.Section, f.Scaled = t.Name, "8.3", storeScaled+f.Scaled
			figures = append(figures, f)
		}
	}
	overSSD := func(store string) Quantity { return times(ycsb.SSD, store, 1) }
	on := func(store string) At { return mops(ycsb.Redy, store, 1) }
	add(Stores{
		Name: "small values", Value: smallValue, Devices: threeDevices, Threads: threadCounts, Cache: []float64{smallCache}, Vary: Threads,
		Stores: []Store{
			{Name: uniformStore, Distribution: ycsb.Uniform, Memory: 1},
			{Name: zipfStore, Distribution: ycsb.Zipfian, ReadCache: hotShare, Memory: 1},
			{Name: tightStore, Distribution: ycsb.Zipfian, ReadCache: hotShare, Memory: 0.1},
		},
	}, Figure{
		Name: "fig18a", Title: "YCSB, uniform, 8 B values, 1 GB of local memory", Charts: throughput("threads", uniformStore), Scaled: smallScaled,
		Claims: []Claim{
			{Q: "Q47", Text: "one thread on Redy", Paper: 0.8, Unit: "MOPS", Ours: on(uniformStore), Own: true},
			{Q: "Q47", Text: "one thread: Redy over SSD", Paper: 8, Unit: "times", Ours: overSSD(uniformStore), Own: true},
			{Q: "Q47", Text: "one thread: Redy over SMB", Paper: 8, Unit: "times", Ours: times(ycsb.SMB, uniformStore, 1), Own: true},
			{Q: "Q48", Text: "two threads on Redy", Paper: 1.6, Unit: "MOPS", Ours: mops(ycsb.Redy, uniformStore, 2), Own: true},
			{Q: "Q48", Text: "two threads: Redy over SSD", Paper: 10, Unit: "times", Ours: times(ycsb.SSD, uniformStore, 2), Own: true},
			{Q: "Q48", Text: "two threads: Redy over SMB", Paper: 10, Unit: "times", Ours: times(ycsb.SMB, uniformStore, 2), Own: true},
			{Q: "Q48", Text: "the second thread doubles Redy's throughput", Paper: 2, Unit: "times", Ours: Ratio{mops(ycsb.Redy, uniformStore, 2), on(uniformStore)}, Holds: nearPaper(2)},
		},
	}, Figure{
		Name: "fig18b", Title: "YCSB, Zipf, 8 B values, 1 GB of local memory", Charts: throughput("threads", zipfStore), Scaled: smallScaled,
		Claims: []Claim{
			{Q: "Q49", Text: "one thread on Redy: more than with uniform reads (figure 18a)", Unit: "times", Ours: Ratio{on(zipfStore), on(uniformStore)}, Holds: AtLeast(1)},
			{Q: "Q49", Text: "and on SSD", Unit: "times", Ours: Ratio{mops(ycsb.SSD, zipfStore, 1), mops(ycsb.SSD, uniformStore, 1)}, Own: true},
			{Q: "Q49", Text: "and on SMB", Unit: "times", Ours: Ratio{mops(ycsb.SMB, zipfStore, 1), mops(ycsb.SMB, uniformStore, 1)}, Holds: AtLeast(1)},
			{Q: "Q51", Text: "one thread: Redy over SSD: at least twice in the paper", Paper: 2, Unit: "times", Ours: overSSD(zipfStore), Own: true},
			{Q: "Q51", Text: "one thread: Redy over SMB: at least twice in the paper", Paper: 2, Unit: "times", Ours: times(ycsb.SMB, zipfStore, 1), Own: true},
		},
	}, Figure{
		Name: "fig18c", Title: "YCSB, Zipf, 8 B values, 0.1 GB of local memory", Charts: throughput("threads", tightStore), Scaled: smallScaled,
		Claims: []Claim{
			{Q: "Q49", Text: "throughput on Redy is nearer to that of uniform reads than with 1 GB: by so much less", Unit: "of a factor e", Holds: AtLeast(0),
				Ours: Minus{Gap{on(zipfStore), on(uniformStore)}, Gap{on(tightStore), on(uniformStore)}}},
			{Q: "Q49", Text: "and so is its ratio to SSD", Unit: "of a factor e", Holds: AtLeast(0),
				Ours: Minus{Gap{overSSD(zipfStore), overSSD(uniformStore)}, Gap{overSSD(tightStore), overSSD(uniformStore)}}},
			{Q: "Q51", Text: "one thread: Redy over SSD: at least twice in the paper", Paper: 2, Unit: "times", Ours: overSSD(tightStore), Own: true},
			{Q: "Q51", Text: "one thread: Redy over SMB: at least twice in the paper", Paper: 2, Unit: "times", Ours: times(ycsb.SMB, tightStore, 1), Own: true},
		},
	})
	add(Stores{
		Name: "fig18d", Value: largeValue, Devices: threeDevices, Threads: threadCounts,
		Stores: []Store{{Distribution: ycsb.Uniform, Memory: 1}}, Cache: []float64{largeCache}, Vary: Threads,
	}, Figure{
		Name: "fig18d", Title: "YCSB, uniform, 1 KB values, 1 GB of local memory", Charts: throughput("threads", ""),
		Claims: []Claim{
			{Q: "Q50", Text: "four threads on Redy", Paper: 0.9, Unit: "MOPS", Ours: mops(ycsb.Redy, "", 4), Own: true},
			{Q: "Q50", Text: "four threads: Redy over SMB", Paper: 8, Unit: "times", Ours: times(ycsb.SMB, "", 4), Own: true},
			{Q: "Q50", Text: "four threads: Redy over SSD", Paper: 20, Unit: "times", Ours: times(ycsb.SSD, "", 4), Own: true},
		},
	})
	for _, f := range []struct {
		letter string
		local  float64
	}{{"e", 10}, {"f", 20}, {"g", 40}, {"h", 80}} {
		t, figure := zipfFigure(f.letter, f.local)
		trials, figures = append(trials, t), append(figures, figure)
	}
	local := func(device ycsb.Device) At { return mops(device, "", largestLocal) }
	fig19 := Stores{Name: "fig19", Value: smallValue, Devices: threeDevices, Threads: []int{4}, Cache: []float64{smallCache}, Vary: LocalMemory}
	for _, memory := range []float64{largestLocal, 4, 2, 1, 0} {
		fig19.Stores = append(fig19.Stores, Store{Distribution: ycsb.Uniform, Memory: memory})
	}
	add(fig19, Figure{
		Name: "fig19", Title: "Various sizes of local memory, uniform, four threads", Charts: throughput("GB of local memory, at the paper's scale", ""),
		Scaled: " Every round takes the local memory from one store step by step, from the most to none; another order would load it for each size. No local memory is the log's least: four pages. At scale machine the database is smaller than that of figure 18 where all of it in local memory, in Redy's and in the file server's is more than there is.",
		Claims: []Claim{
			{Q: "Q52", Text: "all in local memory", Paper: 5, Unit: "MOPS", Ours: local(ycsb.Redy), Own: true},
			{Q: "Q53", Text: "all on Redy", Paper: 1.4, Unit: "MOPS", Ours: mops(ycsb.Redy, "", 0), Own: true},
			{Q: "Q53", Text: "all on SMB", Paper: 0.15, Unit: "MOPS", Ours: mops(ycsb.SMB, "", 0)},
			{Q: "Q53", Text: "all on SSD", Paper: 0.12, Unit: "MOPS", Ours: mops(ycsb.SSD, "", 0)},
			{Q: "Q53", Text: "loss against local memory on Redy", Paper: 72, Unit: "%", Ours: Loss{local(ycsb.Redy), mops(ycsb.Redy, "", 0)}, Holds: AtMost(72)},
			{Q: "Q53", Text: "loss against local memory on SMB", Paper: 97, Unit: "%", Ours: Loss{local(ycsb.SMB), mops(ycsb.SMB, "", 0)}},
			{Q: "Q53", Text: "loss against local memory on SSD", Paper: 98, Unit: "%", Ours: Loss{local(ycsb.SSD), mops(ycsb.SSD, "", 0)}},
			{Q: "Q53", Text: "all on Redy over all on SMB", Paper: 1.4 / 0.15, Unit: "times", Ours: times(ycsb.SMB, "", 0), Own: true},
			{Q: "Q53", Text: "all on Redy over all on SSD", Paper: 1.4 / 0.12, Unit: "times", Ours: times(ycsb.SSD, "", 0), Own: true},
		},
	})
	tiered := func(cache float64) At { return At{Series: tieredSeries, X: cache, Metric: "mops"} }
	add(Stores{
		Name: "fig20", Value: smallValue, Devices: tierDevices, Threads: []int{4},
		Stores: []Store{{Distribution: ycsb.Uniform, Memory: 1}}, Cache: tierCaches, Vary: RedyCache,
	}, Figure{
		Name: "fig20", Title: "Various sizes of Redy's cache, uniform, four threads", Charts: throughput("GB of Redy's cache, at the paper's scale", ""),
		Scaled: " All sizes of the cache exist at once, each before an SSD of its own. At scale machine the database is smaller than that of figure 18 where they are more than there is.",
		Claims: []Claim{
			{Q: "Q54", Text: "throughput rises with the cache until that holds the log: the least step", Unit: "times", Ours: Rise{tieredSeries, "mops", 6}, Holds: AtLeast(1)},
			{Q: "Q54", Text: "8 GB of cache over none", Unit: "times", Ours: Ratio{tiered(8), tiered(0)}, Own: true},
		},
	})
	return trials, figures
}()
