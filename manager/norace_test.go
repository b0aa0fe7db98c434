//go:build !race

package manager

// simCaches is how many caches are simulated.
const simCaches = 200
