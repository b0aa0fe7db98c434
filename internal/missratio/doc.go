// Package missratio predicts how the reads of a hybrid log divide between memory, read cache and
// tiers at other sizes of these than the present ones.
//
// A [Sampler] sees some of a store's accesses. As in SHARDS (Waldspurger et al., FAST 2015), it
// follows the keys whose hash is below a threshold, and the threshold falls so that the number of
// keys stays bounded. Each followed key is a small part of a simulation: the sampler simulates the
// hybrid log at 17 sizes, and at each of them five read caches, with the rules of packages hlog
// and readcache (logsim.go, cachesim.go). Simulated addresses are in bytes of the whole log: a
// followed key's record stands for as many records as there are keys for each followed one.
//
// A few very hot keys may be most of the load, and whether one of them is followed is chance.
// Their accesses are estimated from witnesses instead, a sample of accesses rather than of keys
// (hot.go).
//
// [Sampler.Model] is a snapshot that answers questions: [Model.Predict].
package missratio
