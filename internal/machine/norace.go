//go:build !race

package machine

// RaceDetector says whether the program was built with the race detector, which makes it
// some ten times slower and allocates memory itself.
const RaceDetector = false
