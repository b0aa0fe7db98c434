//go:build race

package machine

// RaceDetector reports whether the program was built with the race detector, which makes it
// about ten times slower and allocates memory.
const RaceDetector = true
