// Package report makes one HTML page of a run of package paper: plots, the paper's
// numbers beside ours, what holds and what does not, and every figure as a table. The
// page loads nothing, links to nothing outside itself, and follows the reader's choice
// of light or dark.
//
// The plots are drawn here and not by a library: a line that carries its own name, at
// its end and out of the way of the others', and colours that the page's style sheet
// gives and changes between light and dark, are what plotting libraries for Go do not
// have; what is left to do beside those is little.
package report
