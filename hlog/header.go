package hlog

// Header is the first word of every record:
//
//	63    62     61       60       59         58      57      56..48   47..0
//	used  spare  expires  invalid  tombstone  sealed  locked  version  previous address
//
// The previous address leads to the next older record of the same index entry.
// Version counts in-place updates of the value: together with locked it is the
// sequence lock by which readers tell a torn value. It never wraps; a record
// whose versions are used up is copied to the tail instead.
type Header uint64

const (
	addressMask Header = MaxAddress - 1

	versionShift        = 48
	versionUnit  Header = 1 << versionShift
	versionMask  Header = (1<<9 - 1) << versionShift

	headerLocked    Header = 1 << 57
	headerSealed    Header = 1 << 58
	headerTombstone Header = 1 << 59
	headerInvalid   Header = 1 << 60
	headerExpires   Header = 1 << 61
	headerUsed      Header = 1 << 63
)

// Plain says that a reader need not look further than the value: the record is
// no tombstone and does not expire.
func (h Header) Plain() bool { return h&(headerTombstone|headerExpires) == 0 }

// Updatable says that the value of a plain record may be updated in place, now.
func (h Header) Updatable() bool {
	return h&(headerTombstone|headerExpires|headerSealed|headerLocked) == 0
}

// NewHeader is the header of a fresh record after the one at previous.
func NewHeader(previous int64, tombstone bool) Header {
	h := headerUsed | Header(previous)&addressMask
	if tombstone {
		h |= headerTombstone
	}
	return h
}

// Previous is the address of the next older record in the chain, below every
// record's own address; 0 ends the chain.
func (h Header) Previous() int64 { return int64(h & addressMask) }

// Used tells a record from the unused end of a page.
func (h Header) Used() bool { return h&headerUsed != 0 }

// Tombstone says that the record deletes its key.
func (h Header) Tombstone() bool { return h&headerTombstone != 0 }

// Expires says that the record carries the time at which it ends to be.
func (h Header) Expires() bool { return h&headerExpires != 0 }

// Invalid says that the record was never reachable: its writer lost a race.
func (h Header) Invalid() bool { return h&headerInvalid != 0 }

// Sealed says that a newer record replaces this one, which must not be updated
// in place any more.
func (h Header) Sealed() bool { return h&headerSealed != 0 }

// Locked says that the value is being updated.
func (h Header) Locked() bool { return h&headerLocked != 0 }

// Exhausted says that one more in-place update would let the version wrap.
func (h Header) Exhausted() bool { return h&versionMask == versionMask }
