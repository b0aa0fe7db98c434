//go:build !amd64 || race

package kv

// The portable forms take the place of vector instructions everywhere.
const vectors, vectors2 = true, false

func (v *view) hashWords(*lane) int { return 0 }

func (v *view) scan(l *lane) (absent int) { return v.scanWords(l.hashes[:l.n], l.places[:l.n]) }

// newest is the address of the newest record of a hash's chain, or 0 where the first
// bucket has no entry.
func (v *view) newest(hash uint64, _ int) int64 { return v.newestOf(hash) }
