// Package paper reproduces the figures of the paper's evaluation on the local machine: it
// measures, stores the measurements, judges the paper's claims by them, and reports what was
// scaled, modelled or left out.
//
// A [Figure] is data: which measurements of which trial it shows, how they are drawn, and what
// the paper reports and claims. A [Trial] is data as well: a workload, devices or
// configurations, and a variable. [Figures] and [Trials] list all of them; a new experiment is
// an entry in each.
//
// [Run] measures the trials of some figures. A trial is a list of turns. A turn measures
// everything that is compared, one after the other, and is repeated in several rounds, so that
// other load on the machine affects all series alike. The [Measurement]s of a turn are
// appended to a file at its end: an interrupted run continues with the next turn.
//
// A round's number is the mean of all that was measured in the round after its warm-up; of a cache
// or a transport alone it is that of the slice with the median throughput, as in bench cache.
// Numbers are combined per round and reported as the median with the least and the greatest
// ([Value]). A claim whose bound lies between these two is judged by the median and marked as
// inconclusive. In a trial of SLOs a round is one SLO, in a trace one quantile; their claims
// name a quantile or a mean over all.
//
// A bound is within a quarter of the paper's number; where this project has measured so much more
// that the paper's could hardly fail, within a quarter of the worst round that it has measured
// ([Claim].Own); and where the paper only says which of two is more, that. Bounds of the second
// kind are of one machine, its disk included. What the constants of the network model or of an
// experiment give is no claim ([Claim].Constant). A reason for a claim that does not hold is one
// that the run has measured ([Cause]), or "not known". A claim fails if in a round nothing was done.
//
// [Judge] needs the measurements only: a run can be judged again, by the bounds of another
// revision. Package report makes the HTML page of a run. [Diff] compares two runs.
package paper
