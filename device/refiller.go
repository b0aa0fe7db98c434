package device

// Refiller is a Device that continues when it loses a part of what it holds, such as a
// cache in the memory of several machines, one of which fails. It knows what it lacks, and
// accepts it again when there is memory (R83). Tiered, which owns it, copies it back from
// the tiers behind; the last tier is never a Refiller.
//
// Holes are ranges at or above Begin that the device does not hold. A read that overlaps
// one fails with ErrNotHeld, even if the hole appears, or appears and is filled, during the
// read. A write that fails with ErrNotHeld makes a hole of its range; the device is healthy
// nevertheless. A successful write into a hole fills it.
//
// A Refiller is volatile. Start makes one hole from Begin to the tail, and Begin is as low
// as the device has room for, so that what it held before a restart can be copied back.
// Sync fails with ErrNotHeld, once, if a successful write was lost since the last Sync.
type Refiller interface {
	Device
	// Missed makes a hole of what was written to the log without the device while it was
	// started: the log from the address of Start to another one, where it ends now. It only
	// notes that.
	Missed(from, to int64)
	// NewRefillQueue is NewQueue for a queue that refills.
	NewRefillQueue(depth int) (RefillQueue, error)
	// Hole returns the newest part of a hole that the device has memory for,
	// below an address and of at most n bytes: the zero Hole if there is none now.
	Hole(below int64, n int) Hole
	// Missing is the size of all holes in bytes.
	Missing() int64
	// HoleReady returns a channel that receives a token when Hole may return a hole that
	// it did not return before.
	HoleReady() <-chan struct{}
}

// Hole is a part of the log that a Refiller lacks.
type Hole struct {
	From, To int64  // addresses; the hole is empty if they are equal
	Ticket   uint64 // identifies the moment at which Hole was called
}

// RefillQueue is a Queue of a Refiller.
type RefillQueue interface {
	Queue
	// Refill fills a hole with src, its bytes. They must have been read after the call of
	// Hole, when no write to the hole that began before that call was pending. If a write
	// to it has begun since, or its place is needed for a later part of the log, Refill
	// or its completion fails with ErrNotHeld, and the hole stays.
	Refill(src []byte, hole Hole, tag uint64) error
}
