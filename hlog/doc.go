// Package hlog is the hybrid log: one address space of records whose tail is in
// memory, updated in place, and whose rest is on a [device.Device].
//
// Addresses grow; these markers cut the log into regions:
//
//	begin      head              read-only          tail
//	  │ device   │ memory, immutable │ memory, mutable │
//	  └──────────┴───────────────────┴─────────────────┘
//	            safe head         safe read-only
//
// A marker's safe twin follows it once every session has seen it move
// (package epoch): below safe read-only nobody updates a record any more, so it
// may be written to the device; below safe head nobody looks at memory any
// more, so the frame may be used again. Between safe read-only and read-only a
// session that entered earlier may still update in place.
//
// A [Log] hands out space at the tail and moves the markers: a flusher of its
// own writes pages that became read-only and evicts the oldest. What a record
// is made of, [Layout] and [Record] know; what it means, package kv does.
//
// Memory is one contiguous ring of page frames outside the Go heap. The unsafe
// code of the store is in this package and in kv's index, probe and words, and
// each access has its reason beside it: bounds come from addresses that the log handed out and
// that lie between head and tail, under the caller's epoch.
package hlog
