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
	threadCounts = []int{1, 2, 4}
)

const storeScaled = "Sizes keep the paper's proportions to the database (250 million records) and shrink with it. Redy's memory is another process's, over the transport and the network model named below. SMB is a Samba server on this machine with its share in memory, not SMB Direct. The store's index, which is beside the local memory, and the local memory are the same for all devices: one store, whose log lies on each of them, is read from one after the other."

const storeBecause = "Client, cache server and file server share this machine's processors, and its disk is not the testbed's."

const apartBecause = "The figures that are compared were measured minutes apart, and what else the machine did meanwhile did not fall on both alike; ratios to SSD and SMB are of one turn each. Redy's memory is this machine's, so that a read cache has less to save than beside a network."

// throughput returns a chart of million reads per second over the labelled variable.
func throughput(label string) []Chart {
	return []Chart{
		{Kind: plot.Lines, Title: "Throughput", X: plot.Axis{Label: label}, Y: plot.Axis{Label: "million reads a second", Log: true}, Metric: "mops"},
		{Kind: plot.Lines, Title: "Latency, 99th percentile", X: plot.Axis{Label: label}, Y: plot.Axis{Label: "µs", Log: true}, Metric: "p99_us"},
	}
}

// mops is the throughput of a device in the figure's own trial.
func mops(device ycsb.Device, x float64) At { return mopsOf("", device, x) }

func mopsOf(trial string, device ycsb.Device, x float64) At {
	return At{Trial: trial, Series: string(device), X: x, Metric: "mops"}
}

// times is the ratio of Redy's throughput to a device's.
func times(device ycsb.Device, x float64) Quantity {
	return Ratio{mops(ycsb.Redy, x), mops(device, x)}
}

// zipfFigure returns one of the figures 18e to 18h, with its trial.
func zipfFigure(letter string, local float64) (Stores, Figure) {
	t := Stores{
		Name: "fig18" + letter, Value: largeValue, Distribution: ycsb.Zipfian, ReadCache: hotShare, Devices: threeDevices,
		Threads: threadCounts, Memory: []float64{local}, Cache: []float64{largeCache}, Vary: Threads,
	}
	return t, Figure{
		Name: t.Name, Title: fmt.Sprintf("YCSB, Zipf, 1 KB values, %g GB of local memory", local), Section: "8.3", Trial: t.Name,
		Scaled: storeScaled, Charts: throughput("threads"),
		Claims: []Claim{
			{Q: "Q51", Text: "with four threads Redy over SSD: at least twice", Paper: 2, Unit: "times", Ours: times(ycsb.SSD, 4), Holds: AtLeast(2), Because: storeBecause},
			{Q: "Q51", Text: "with four threads Redy over SMB: at least twice", Paper: 2, Unit: "times", Ours: times(ycsb.SMB, 4), Holds: AtLeast(2), Because: storeBecause},
		},
	}
}

var storeTrials, storeFigures = func() (trials []Trial, figures []Figure) {
	small := func(name string, distribution ycsb.Distribution, cache float64, local float64) Stores {
		return Stores{
			Name: name, Value: smallValue, Distribution: distribution, ReadCache: cache, Devices: threeDevices,
			Threads: threadCounts, Memory: []float64{local}, Cache: []float64{smallCache}, Vary: Threads,
		}
	}
	add := func(t Stores, f Figure) {
		f.Name, f.Trial, f.Section, f.Scaled = t.Name, t.Name, "8.3", storeScaled+f.Scaled
		trials, figures = append(trials, t), append(figures, f)
	}
	add(small("fig18a", ycsb.Uniform, 0, 1), Figure{
		Title: "YCSB, uniform, 8 B values, 1 GB of local memory", Charts: throughput("threads"),
		Claims: []Claim{
			{Q: "Q47", Text: "one thread on Redy", Paper: 0.8, Unit: "MOPS", Ours: mops(ycsb.Redy, 1), Holds: AtLeast(0.8), Because: storeBecause},
			{Q: "Q47", Text: "one thread: Redy over SSD", Paper: 8, Unit: "times", Ours: times(ycsb.SSD, 1), Holds: AtLeast(8), Because: storeBecause},
			{Q: "Q47", Text: "one thread: Redy over SMB", Paper: 8, Unit: "times", Ours: times(ycsb.SMB, 1), Holds: AtLeast(8), Because: storeBecause},
			{Q: "Q48", Text: "two threads on Redy", Paper: 1.6, Unit: "MOPS", Ours: mops(ycsb.Redy, 2), Holds: AtLeast(1.6), Because: storeBecause},
			{Q: "Q48", Text: "two threads: Redy over SSD", Paper: 10, Unit: "times", Ours: times(ycsb.SSD, 2), Holds: AtLeast(10), Because: storeBecause},
			{Q: "Q48", Text: "two threads: Redy over SMB", Paper: 10, Unit: "times", Ours: times(ycsb.SMB, 2), Holds: AtLeast(10), Because: storeBecause},
			{Q: "Q48", Text: "the second thread doubles Redy's throughput", Paper: 2, Unit: "times", Ours: Ratio{mops(ycsb.Redy, 2), mops(ycsb.Redy, 1)}, Holds: AtLeast(1.5), Because: storeBecause},
			goal("one thread: Redy at least 25 times SSD", times(ycsb.SSD, 1), 25),
			goal("one thread: Redy at least 25 times SMB", times(ycsb.SMB, 1), 25),
			goal("two threads: Redy at least 25 times SSD", times(ycsb.SSD, 2), 25),
			goal("two threads: Redy at least 25 times SMB", times(ycsb.SMB, 2), 25),
		},
	})
	add(small("fig18b", ycsb.Zipfian, hotShare, 1), Figure{
		Title: "YCSB, Zipf, 8 B values, 1 GB of local memory", Charts: throughput("threads"),
		Claims: []Claim{
			{Q: "Q49", Text: "one thread on Redy: more than with uniform reads (figure 18a)", Unit: "times", Ours: Ratio{mops(ycsb.Redy, 1), mopsOf("fig18a", ycsb.Redy, 1)}, Holds: AtLeast(1), Because: apartBecause},
			{Q: "Q49", Text: "and on SSD", Unit: "times", Ours: Ratio{mops(ycsb.SSD, 1), mopsOf("fig18a", ycsb.SSD, 1)}, Holds: AtLeast(1), Because: storeBecause},
			{Q: "Q51", Text: "one thread: Redy over SSD: at least twice", Paper: 2, Unit: "times", Ours: times(ycsb.SSD, 1), Holds: AtLeast(2), Because: storeBecause},
			{Q: "Q51", Text: "one thread: Redy over SMB: at least twice", Paper: 2, Unit: "times", Ours: times(ycsb.SMB, 1), Holds: AtLeast(2), Because: storeBecause},
		},
	})
	ratioOf := func(trial string, device ycsb.Device) Quantity {
		return Ratio{mopsOf(trial, ycsb.Redy, 1), mopsOf(trial, device, 1)}
	}
	add(small("fig18c", ycsb.Zipfian, hotShare, 0.1), Figure{
		Title: "YCSB, Zipf, 8 B values, 0.1 GB of local memory", Charts: throughput("threads"),
		Claims: []Claim{
			{Q: "Q49", Text: "throughput on Redy is nearer to that of uniform reads than with 1 GB: by so much less", Unit: "of a factor e", Holds: AtLeast(0), Because: apartBecause,
				Ours: Minus{Gap{mopsOf("fig18b", ycsb.Redy, 1), mopsOf("fig18a", ycsb.Redy, 1)}, Gap{mops(ycsb.Redy, 1), mopsOf("fig18a", ycsb.Redy, 1)}}},
			{Q: "Q49", Text: "and so is its ratio to SSD", Unit: "of a factor e", Holds: AtLeast(0), Because: storeBecause,
				Ours: Minus{Gap{ratioOf("fig18b", ycsb.SSD), ratioOf("fig18a", ycsb.SSD)}, Gap{ratioOf("", ycsb.SSD), ratioOf("fig18a", ycsb.SSD)}}},
			{Q: "Q51", Text: "one thread: Redy over SSD: at least twice", Paper: 2, Unit: "times", Ours: times(ycsb.SSD, 1), Holds: AtLeast(2), Because: storeBecause},
			{Q: "Q51", Text: "one thread: Redy over SMB: at least twice", Paper: 2, Unit: "times", Ours: times(ycsb.SMB, 1), Holds: AtLeast(2), Because: storeBecause},
		},
	})
	add(Stores{
		Name: "fig18d", Value: largeValue, Distribution: ycsb.Uniform, Devices: threeDevices, Threads: threadCounts,
		Memory: []float64{1}, Cache: []float64{largeCache}, Vary: Threads,
	}, Figure{
		Title: "YCSB, uniform, 1 KB values, 1 GB of local memory", Charts: throughput("threads"),
		Claims: []Claim{
			{Q: "Q50", Text: "four threads on Redy", Paper: 0.9, Unit: "MOPS", Ours: mops(ycsb.Redy, 4), Holds: AtLeast(0.9), Because: storeBecause},
			{Q: "Q50", Text: "four threads: Redy over SMB", Paper: 8, Unit: "times", Ours: times(ycsb.SMB, 4), Holds: AtLeast(8), Because: storeBecause},
			{Q: "Q50", Text: "four threads: Redy over SSD", Paper: 20, Unit: "times", Ours: times(ycsb.SSD, 4), Holds: AtLeast(20), Because: storeBecause},
			goal("four threads: Redy at least 15 times SSD", times(ycsb.SSD, 4), 15),
		},
	})
	for _, f := range []struct {
		letter string
		local  float64
	}{{"e", 10}, {"f", 20}, {"g", 40}, {"h", 80}} {
		t, figure := zipfFigure(f.letter, f.local)
		trials, figures = append(trials, t), append(figures, figure)
	}
	local := func(device ycsb.Device) At { return mops(device, largestLocal) }
	add(Stores{
		Name: "fig19", Value: smallValue, Distribution: ycsb.Uniform, Devices: threeDevices, Threads: []int{4},
		Memory: []float64{largestLocal, 4, 2, 1, 0}, Cache: []float64{smallCache}, Vary: LocalMemory,
	}, Figure{
		Title: "Various sizes of local memory, uniform, four threads", Charts: throughput("GB of local memory, at the paper's scale"),
		Scaled: " No local memory is the log's least: four pages. At scale machine the database is smaller than that of figure 18 where all of it in local memory, in Redy's and in the file server's is more than there is.",
		Claims: []Claim{
			{Q: "Q52", Text: "all in local memory", Paper: 5, Unit: "MOPS", Ours: local(ycsb.Redy), Holds: AtLeast(5), Because: storeBecause},
			{Q: "Q53", Text: "all on Redy", Paper: 1.4, Unit: "MOPS", Ours: mops(ycsb.Redy, 0), Holds: AtLeast(1.4), Because: storeBecause},
			{Q: "Q53", Text: "all on SMB", Paper: 0.15, Unit: "MOPS", Ours: mops(ycsb.SMB, 0)},
			{Q: "Q53", Text: "all on SSD", Paper: 0.12, Unit: "MOPS", Ours: mops(ycsb.SSD, 0)},
			{Q: "Q53", Text: "loss against local memory on Redy", Paper: 72, Unit: "%", Ours: Loss{local(ycsb.Redy), mops(ycsb.Redy, 0)}, Holds: AtMost(72),
				Because: "The loss is against a store that answers from local memory many times faster than the paper's did, while a read of Redy's memory costs as much as the transport makes it: the faster the store, the more there is to lose."},
			{Q: "Q53", Text: "loss against local memory on SMB", Paper: 97, Unit: "%", Ours: Loss{local(ycsb.SMB), mops(ycsb.SMB, 0)}},
			{Q: "Q53", Text: "loss against local memory on SSD", Paper: 98, Unit: "%", Ours: Loss{local(ycsb.SSD), mops(ycsb.SSD, 0)}},
			{Q: "Q53", Text: "all on Redy over all on SMB", Paper: 1.4 / 0.15, Unit: "times", Ours: times(ycsb.SMB, 0), Holds: AtLeast(1.4 / 0.15), Because: storeBecause},
			{Q: "Q53", Text: "all on Redy over all on SSD", Paper: 1.4 / 0.12, Unit: "times", Ours: times(ycsb.SSD, 0), Holds: AtLeast(1.4 / 0.12), Because: storeBecause},
			goal("all on Redy at least 10 times all on SMB", times(ycsb.SMB, 0), 10),
		},
	})
	add(Stores{
		Name: "fig20", Value: smallValue, Distribution: ycsb.Uniform, Devices: []ycsb.Device{ycsb.Redy}, Threads: []int{4},
		Memory: []float64{1}, Cache: []float64{0, 2, 4, 6, 8}, Vary: RedyCache,
	}, Figure{
		Title: "Various sizes of Redy's cache, uniform, four threads", Charts: throughput("GB of Redy's cache, at the paper's scale"),
		Claims: []Claim{
			{Q: "Q54", Text: "throughput rises with the cache until that holds the log: the least step", Unit: "times", Ours: Rise{tieredSeries, "mops", 6}, Holds: AtLeast(1), Because: storeBecause},
			{Q: "Q54", Text: "8 GB of cache over none", Unit: "times", Ours: Ratio{mops(tieredSeries, 8), mops(tieredSeries, 0)}, Holds: AtLeast(2), Because: storeBecause},
		},
	})
	return trials, figures
}()

// goal is a claim of this project, beyond the paper's.
func goal(text string, ours Quantity, least float64) Claim {
	return Claim{Q: "goal", Text: text, Unit: "times", Ours: ours, Holds: AtLeast(least), Because: storeBecause}
}
