//go:build !race

package storebench

const raceEnabled = false
