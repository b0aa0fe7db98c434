package kv

import (
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

// arriveWord is arrive for a read of a record with an 8-byte key and value: see
// words.go. It is what nearly all reads find, the record that was looked for, as
// it was written first. If the record is anything else, arriveWord returns false,
// having done nothing.
func (s *Session) arriveWord(c *device.Completion) bool {
	n := uint32(c.Tag)
	f := &s.flights[n]
	op := f.op
	if c.Err != nil || op.Kind != OpRead || f.keep != 0 || cap(op.Value) < 8 || len(f.buf) != s.record {
		return false
	}
	r := hlog.RecordAt(unsafe.Pointer(unsafe.SliceData(f.buf))) // as long as one in memory, and nobody else's
	if h := r.Header(); !h.Used() || !h.Plain() || r.Word0() != loadWord(op.Key) {
		return false
	}
	s.counts.deviceReads.inc()
	if s.cache != nil {
		s.cache.Add(f.at.address, f.buf)
	}
	op.Value = op.Value[:8] // which stores no pointer, as append would
	*(*uint64)(unsafe.Pointer(unsafe.SliceData(op.Value))) = r.Word1()
	op.Expires = 0
	s.land(n, nil, int(c.Tier))
	return true
}
