//go:build race

package goycsb

const raceEnabled = true
