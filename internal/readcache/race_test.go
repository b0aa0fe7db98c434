//go:build race

package readcache

const raceEnabled = true
