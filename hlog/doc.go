// Package hlog is the hybrid log: one address space of records. Its tail is in memory and
// updated in place, and the rest is on a [device.Device].
//
// Addresses grow; these markers divide the log into regions:
//
//	begin      head              read-only          tail
//	  │ device   │ memory, immutable │ memory, mutable │
//	  └──────────┴───────────────────┴─────────────────┘
//	            safe head         safe read-only
//
// Head and read-only each have a safe copy, which gets the marker's new address once every
// session has seen it (package epoch). Below safe read-only no session updates a record, so it
// can be written to the device; below safe head no session reads the memory, so the frame can
// be reused. Between safe read-only and read-only a session that entered its epoch before the
// marker moved may still update in place.
//
// A [Log] allocates space at the tail and moves the markers: its flusher writes pages that
// became read-only and evicts the oldest. [Layout] and [Record] define the bytes of a
// record; package kv defines their meaning.
//
// Memory is one contiguous ring of page frames outside the Go heap. The unsafe code that turns
// log addresses into pointers is in this package and in kv's view and plain calls. It is safe
// because addresses come from the log and lie between head and tail, under the caller's epoch,
// and a mask keeps every access inside the ring.
package hlog
