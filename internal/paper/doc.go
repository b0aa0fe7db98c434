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
// Numbers are computed per round and reported as the median with the least and the greatest
// ([Value]). A claim whose bound lies between these two is judged by the median and marked as
// inconclusive.
//
// Package report makes the HTML page of a run. [Diff] compares two runs.
package paper
