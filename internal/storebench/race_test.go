//go:build race

package storebench

const raceEnabled = true
