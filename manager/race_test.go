//go:build race

package manager

// simCaches is how many caches are simulated: fewer, as everything takes ten times as long.
const simCaches = 40
