// Package keep measures how well a manager keeps the SLOs of caches under load while something
// disturbs them: the network slows down, a neighbour takes a server's processor, a server's link
// narrows. It compares managers that correct their models and change caches with managers that only
// watch.
package keep
