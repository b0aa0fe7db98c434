//go:build !race

package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// haveAssembly says that plain calls of 8-byte keys and values are in assembly. It enters
// epochs by plain stores.
const haveAssembly = true

// The fewer instructions a plain call takes, the more calls the processor overlaps: so
// these are in assembly from the arguments to the result. They end in readGeneral,
// upsertGeneral and rmwWordGeneral where they cannot complete the call.

func readWord(s *Session, key, dst []byte) (done bool)

func upsertWord(s *Session, key, value []byte) (done bool)

func rmwWord(s *Session, key []byte, modify WordModifier) (done bool)

// findRMW returns a record whose lock-free value may be updated in place, with the value
// in s.oldWord and s.update ready for a Modifier; else none. The session is outside its
// epoch again.
//
//go:noescape
func findRMW(s *Session, key unsafe.Pointer) (record hlog.Record)
