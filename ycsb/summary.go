package ycsb

import (
	"cmp"
	"slices"

	"github.com/redykv/redykv/internal/bench"
)

// summary is the result of an experiment, with those of its rounds.
type summary struct {
	Result
	rounds []Result // in the order of rounds
}

// summarize returns the run with the median throughput, with the range and the errors of all
// runs. There is at least one.
func summarize(rounds []Result) summary {
	r := bench.MedianBy(rounds, mops)
	r.Rounds, r.MopsMin, r.MopsMax = len(rounds), r.Mops, r.Mops
	r.Errors, r.FirstError = 0, ""
	for _, round := range rounds {
		r.MopsMin, r.MopsMax = min(r.MopsMin, round.Mops), max(r.MopsMax, round.Mops)
		r.Errors += round.Errors
		r.FirstError = cmp.Or(r.FirstError, round.FirstError)
		r.Note = cmp.Or(r.Note, round.Note)
	}
	return summary{r, rounds}
}

func mops(r *Result) float64 { return r.Mops }

// cold is the throughput of the records that the SSD was asked for.
func cold(r *Result) float64 { return r.Mops * r.Mix.finds() * r.HitSSD }

// written is the throughput of the blocks that the store's process wrote, in 10^6 a second.
func written(r *Result) float64 { return float64(r.DiskWritten) / writeBlock / 1e6 / r.Seconds }

// over returns the ratio of a figure to the base's throughput.
func (s summary) over(base summary, figure func(*Result) float64) float64 {
	return bench.RatioOfFigures(s.rounds, base.rounds, figure, mops)
}

// compare sets the ratios of stores to the SSD and to the file server with the same load and
// read cache, of a peer to those with the smallest one; and those to Pebble. It sets the SSD's
// shares of the disk.
func compare(all []summary) {
	for i := range all {
		s := &all[i]
		s.RatioToSSD, s.RatioToSMB, s.RatioToPebble = s.ratioTo(SSD, all), s.ratioTo(SMB, all), s.ratioTo("pebble", all)
		if s.Device != SSD {
			continue
		}
		for _, disk := range all {
			switch {
			case disk.Device != DiskAlone:
			case disk.Mix == MixWrite && s.Mix.Writes():
				s.ShareOfDevice = s.over(disk, written)
			case disk.Mix == MixC && disk.Threads == s.Threads:
				s.OfDisk = s.over(disk, cold)
			}
		}
	}
}

// ratioTo returns the ratio of a store's throughput to that of the store on a device, or of a
// peer; 0 if that was not measured.
func (s summary) ratioTo(device Device, all []summary) float64 {
	var bases []summary
	for _, base := range all {
		if base.Device == device && base.Mix == s.Mix && base.Distribution == s.Distribution && base.Threads == s.Threads &&
			(base.ReadCache == s.ReadCache || isPeer(s.Device) || isPeer(device)) {
			bases = append(bases, base)
		}
	}
	if len(bases) == 0 || s.Device == DiskAlone {
		return 0
	}
	// Of a peer's depths the faster one counts.
	return s.over(slices.MinFunc(bases, func(a, b summary) int {
		return cmp.Or(cmp.Compare(a.ReadCache, b.ReadCache), cmp.Compare(b.Mops, a.Mops))
	}), mops)
}
