// Package report makes one HTML page of a run of package paper: plots, the paper's numbers
// beside ours, verdicts on the claims, and a table per figure. The page loads nothing and
// links to nothing outside itself, and follows the reader's choice of light or dark.
//
// The package draws its plots itself. Plotting libraries for Go lack two features: a curve
// that carries its name at its end, clear of other names, and colours that come from the
// page's style sheet and change between light and dark.
package report
