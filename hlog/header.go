package hlog

// Header is the first word of every record:
//
//	63    62     61       60       59         58      57      56..48   47..0
//	used  spare  expires  invalid  tombstone  sealed  locked  version  previous address
//
// The previous address is that of the next older record of the same index entry. Version
// counts in-place updates of the value: with locked it is the sequence lock by which readers
// detect a torn value. It does not wrap: a record whose versions are used up is copied to
// the tail instead.
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

// Plain reports whether the record is neither a tombstone nor expires, so that a reader
// needs only its value.
func (h Header) Plain() bool { return h&(headerTombstone|headerExpires) == 0 }

// Updatable reports whether the record is plain and its value may be updated in place now.
func (h Header) Updatable() bool {
	return h&(headerTombstone|headerExpires|headerSealed|headerLocked) == 0
}

// NewHeader returns the header of a new record after the one at previous.
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

// Used reports whether there is a record, rather than the unused end of a page.
func (h Header) Used() bool { return h&headerUsed != 0 }

// Tombstone reports whether the record deletes its key.
func (h Header) Tombstone() bool { return h&headerTombstone != 0 }

// Expires reports whether the record has an expiry time.
func (h Header) Expires() bool { return h&headerExpires != 0 }

// Invalid reports whether the record was never reachable: its writer lost a race.
func (h Header) Invalid() bool { return h&headerInvalid != 0 }

// Sealed reports whether a newer record replaces this one, which must not be updated in
// place any more.
func (h Header) Sealed() bool { return h&headerSealed != 0 }

// Locked reports whether the value is being updated.
func (h Header) Locked() bool { return h&headerLocked != 0 }

// Exhausted reports whether one more in-place update would make the version wrap.
func (h Header) Exhausted() bool { return h&versionMask == versionMask }
