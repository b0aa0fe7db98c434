//go:build !race

package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// Whatever an entry is that is none, its address is below that of every record: see WIDE.
const _ = uint64(hlog.FirstAddress - 1 - entryMoved&addressMask)

// inAssembly says that plain calls of words enter epochs by plain stores.
const inAssembly = true

// The plain calls of 8-byte keys and values are in assembly whole, since of plain
// calls the processor has the more under way at once the fewer instructions each
// takes. They end in readGeneral, upsertGeneral and rmwWordGeneral unless they can
// do without.

func readWord(s *Session, key, dst []byte) (done bool)

func upsertWord(s *Session, key, value []byte) (done bool)

func rmwWord(s *Session, key []byte, modify WordModifier) (done bool)

// findRMW finds a record in the mutable region, with a value that may be
// updated in place, and puts the value into s.oldWord and makes s.update ready. It
// has left the epoch again.
//
//go:noescape
func findRMW(s *Session, key unsafe.Pointer) (record unsafe.Pointer)
