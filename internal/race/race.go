//go:build race

package race

// Enabled says whether the race detector is part of the program.
const Enabled = true
