// Package report prints and draws what package ycsb measured: a table for the
// terminal, JSON lines for other programs, and one HTML file with plots that
// needs nothing from anywhere else.
//
// Everything takes the results in the order in which they shall appear, and a
// [Head] that says on what they were measured.
package report
