//go:build !amd64 || race

package kv

import "unsafe"

const vectors, vectors2 = true, false // what there is instead is always there

func match(bucket unsafe.Pointer, want uint64) int { return matchWords(bucket, want) }

func (p *probe) hashWords(*lane) int { return 0 }

func (p *probe) scan(l *lane) (absent int) { return p.scanWords(l.hashes[:l.n], l.slots[:l.n]) }

// newest is the address of the newest record of a hash's chain, 0 where the first bucket
// has none.
func (p *probe) newest(hash uint64, _ int) int64 { return p.newestOf(hash) }
