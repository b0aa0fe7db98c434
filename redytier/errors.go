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
	// ErrNoRoom: a server has no room for another connection or its rings. It may have room
	// later; sessions that lose a connection try again by themselves.
	ErrNoRoom = errors.New("redytier: no room for a connection")
	// ErrCores: a VM has too few processors for the server threads; the error says how many
	// it has.
	ErrCores = errors.New("redytier: too few processors for the server threads")
	// ErrRegionUnavailable: the memory is lost or unreachable. A write that ends with it may
	// or may not have taken effect.
	ErrRegionUnavailable = errors.New("redytier: region unavailable")
)
