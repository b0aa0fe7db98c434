package device

// Refiller is a Device that can lose part of what it holds and go on: a cache in
// the memory of several machines, one of which is gone. It knows what it lacks,
// and takes it back when there is memory again (R83). Tiered, which owns it, does
// that from the tiers behind it; the last tier is never one.
//
// Holes are ranges at or above Begin that the device does not hold. A read that
// touches one fails with ErrNotHeld, also if the hole appears, or appears and is
// filled, while the read is under way. A write that fails with ErrNotHeld, and no
// other failed write, has made a hole of its range: the device is well. A write
// into a hole fills it, if it succeeds.
//
// A Refiller is volatile. Start makes one hole of all between Begin and the tail,
// and Begin is as low as the device has room for: so what it held before a restart
// can be brought back. Sync fails with ErrNotHeld, once, if a write that had
// succeeded was lost since the last Sync.
type Refiller interface {
	Device
	// NewRefillQueue is NewQueue for a queue that refills.
	NewRefillQueue(depth int) (RefillQueue, error)
	// Hole returns the newest part of a hole that the device has memory for,
	// below an address and of at most n bytes: the zero Hole if there is none now.
	Hole(below int64, n int) Hole
	// Missing is how many bytes the holes have.
	Missing() int64
	// HoleReady returns a channel that gets a token when Hole may find what it
	// did not find before.
	HoleReady() <-chan struct{}
}

// Hole is a part of the log that a Refiller lacks.
type Hole struct {
	From, To int64  // addresses; the hole is empty if they are equal
	Ticket   uint64 // the Refiller's, of the moment when it was asked
}

// RefillQueue is a Queue of a Refiller.
type RefillQueue interface {
	Queue
	// Refill fills a hole with src, its bytes. They were read after the hole was
	// asked for, and while no write to it was under way that had begun before.
	// What has begun since, the device knows: Refill then fails with ErrNotHeld,
	// or its completion does, and the hole stays. So does it if the device has
	// gone on and needs its place for a later part of the log.
	Refill(src []byte, hole Hole, tag uint64) error
}
