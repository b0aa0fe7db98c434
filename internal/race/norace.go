//go:build !race

// Package race says whether a program was built with the race detector, under which
// everything takes some ten times as long, and whatever counts allocations finds the
// detector's.
package race

// Enabled says whether the race detector is part of the program.
const Enabled = false
