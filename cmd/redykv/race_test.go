//go:build race

package main

// raceEnabled: the detector's own memory is several times the program's.
const raceEnabled = true
