// Package paper draws the figures of the paper's evaluation anew, on the machine at
// hand: it measures, keeps what was measured, judges what the paper claims by it, and
// says what was scaled, modelled or left out.
//
// A [Figure] is data: of which trial it shows what, how it is drawn, what the paper
// reports and claims. A [Trial] is data as well: a workload, devices or configurations,
// and what is varied. [Figures] and [Trials] list all; to add an experiment is to add
// an entry to each.
//
// [Run] goes through the trials of some figures. A trial is a list of turns; in a turn
// everything that is compared is measured, one after the other, and a turn is repeated
// in several rounds, so that what else the machine does falls on all alike. The
// [Measurement]s of a turn are appended to a file when it is over: who is interrupted
// goes on behind the last one.
//
// What a figure says is worked out by round and told as the median with the least and
// the most ([Value]). A claim whose bound lies between the two is judged by the median,
// and marked: the spread is too wide to conclude.
//
// Package report makes the HTML page of it, [Diff] compares two runs.
package paper
