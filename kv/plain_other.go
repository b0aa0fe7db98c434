//go:build !amd64 || race

package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

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
