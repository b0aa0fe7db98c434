//go:build !race

package mem

// StoreRelease stores v at p, after all earlier stores, for readers that load it
// atomically. Later loads may overtake it; a caller that cannot allow that needs an atomic
// exchange. On amd64 a plain store has this order, and unlike an atomic store, which is an
// exchange there, it does not delay the loads of the next operation. The compiler keeps
// stores in their order.
func StoreRelease(p *uint64, v uint64) { *p = v }
