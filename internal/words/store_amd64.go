//go:build !race

package words

// Store stores v at p, after everything that was stored before, for readers that
// load it atomically. Later loads may overtake it: who needs them not to, needs an
// atomic exchange. On amd64 a plain store is just that, and unlike an exchange,
// which is what an atomic store is there, it does not keep the loads of the next
// operation from starting. The compiler keeps stores in their order.
func Store(p *uint64, v uint64) { *p = v }
