//go:build !amd64 || race

package kv

import "unsafe"

func match(bucket unsafe.Pointer, want uint64) int { return matchWords(bucket, want) }

func (p *probe) lookup(key uint64, floor int64) unsafe.Pointer { return p.lookupWords(key, floor) }

func (p *probe) scan(l *lane) { p.scanWords(l.hashes[:l.n], l.slots[:l.n]) }
