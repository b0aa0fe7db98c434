package redytier

import "errors"

// Errors that a caller can act on. They are wrapped with details.
var (
	// ErrOutOfRange: a request exceeds the cache. It had no effect.
	ErrOutOfRange = errors.New("redytier: out of range")
	// ErrBusy: a Try form was refused because too many requests wait; its callback is not
	// called. With Config.RefuseBusy also: another control operation runs, and this one has
	// changed nothing.
	ErrBusy = errors.New("redytier: busy")
	// ErrDeleted: the cache was deleted.
	ErrDeleted = errors.New("redytier: cache deleted")
	// ErrNoCache: the cache that is to be taken up does not exist: its time has ended, it was
	// deleted, or another manager is asked. A new one has to be created.
	ErrNoCache = errors.New("redytier: no such cache")
	// ErrNotTakenUp: the cache that an earlier process has left cannot be taken up, which
	// Config.MustTakeUp asks for.
	ErrNotTakenUp = errors.New("redytier: the cache of before is not taken up")
	// ErrTaken: another client has taken the cache up. This client's requests had no effect
	// since; of those that ended with an error before, the outcome is unknown.
	ErrTaken = errors.New("redytier: another client has taken the cache up")
	// ErrNoRoom: a server has no room for another connection or its rings. Requests that need
	// the connection end with it, and with ErrRegionUnavailable. The session tries again by
	// itself.
	ErrNoRoom = errors.New("redytier: no room for a connection")
	// ErrCores: a VM has too few processors for the server threads; the error says how many
	// it has.
	ErrCores = errors.New("redytier: too few processors for the server threads")
	// ErrRegionUnavailable: the memory is lost or unreachable. A write that ends with it may
	// or may not have taken effect.
	ErrRegionUnavailable = errors.New("redytier: region unavailable")
)
