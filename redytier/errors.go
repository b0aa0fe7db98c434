package redytier

import "errors"

// Errors that a caller can act on, wrapped with what they concern.
var (
	// ErrOutOfRange says that a request reaches outside the cache. It had no
	// effect.
	ErrOutOfRange = errors.New("redytier: out of range")
	// ErrBusy says that a Try form was not accepted because too many requests
	// wait already: its callback is not called. Under Config.RefuseBusy it says that
	// another control operation runs, too: this one has changed nothing.
	ErrBusy = errors.New("redytier: busy")
	// ErrDeleted says that the cache was deleted.
	ErrDeleted = errors.New("redytier: cache deleted")
	// ErrNoRoom says that a server has no room for another connection: it has as many
	// as it takes, or no memory for its rings. It may have later; sessions that lose a
	// connection try again by themselves.
	ErrNoRoom = errors.New("redytier: no room for a connection")
	// ErrCores says that a VM has not the processors for as many server threads; the
	// error names how many it has.
	ErrCores = errors.New("redytier: too few processors for the server threads")
	// ErrRegionUnavailable says that the memory asked for is lost or out of
	// reach. Whether a write that ends with it took effect is unknown.
	ErrRegionUnavailable = errors.New("redytier: region unavailable")
)
