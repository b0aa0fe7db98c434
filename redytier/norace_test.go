//go:build !race

package redytier

const raceEnabled = false
