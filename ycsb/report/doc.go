// Package report writes the results of package ycsb: a table for the terminal, JSON lines for
// other programs, and one self-contained HTML file with plots.
//
// All functions take the results in the order of the report, and a [Head] that describes the
// measurement.
package report
