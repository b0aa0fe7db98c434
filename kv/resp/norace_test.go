//go:build !race

package resp

const underRace = false
