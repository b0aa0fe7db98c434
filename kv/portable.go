//go:build !amd64 || race

package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// The portable forms replace the vector code on every processor.
const vectors, vectors2 = true, false

func (v *view) hashWords(*lane) int { return 0 }

func (v *view) scan(l *lane) (absent int) { return v.scanWords(l.hashes[:l.n], l.places[:l.n]) }

// newest returns the address of the newest record of a hash's chain, or 0 if the first bucket
// has no entry.
func (v *view) newest(hash uint64, _ int) int64 { return v.newestOf(hash) }

// Without assembly, plain calls are the Go functions of plain.go.

const haveAssembly = false

func readWord(s *Session, key, dst []byte) bool { return readGeneral(s, key, dst) }

func upsertWord(s *Session, key, value []byte) bool { return upsertGeneral(s, key, value) }

func rmwWord(s *Session, key []byte, modify WordModifier) bool {
	return rmwWordGeneral(s, key, modify)
}

func findRMW(s *Session, key unsafe.Pointer) hlog.Record {
	r, value, ok := s.findWordDirect(unsafe.Slice((*byte)(key), 8))
	if !ok {
		return hlog.Record{}
	}
	s.oldWord = value
	*s.update = s.form
	return r
}
