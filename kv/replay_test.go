package kv

import (
	"bytes"
	"context"
	"testing"

	"github.com/redykv/redykv/device"
)

// A log of several runs, for several goroutines, is read into an index that has to grow: each key
// has its newest record.
func TestReplay(t *testing.T) {
	const writes, keys, valueSize = 210_000, 70_000, 64
	disk := device.NewMemory()
	opts := Options{Device: objectless{disk}, KeySize: 8, ValueSize: valueSize, Memory: 4 << 20, Records: 64, FixedIndex: true, Logger: silent}
	value := func(n uint64) []byte { return bytes.Repeat(key8(n), valueSize/8) }
	st := open(t, opts)
	s := st.NewSession()
	for n := range uint64(writes) {
		if err := s.Upsert(key8(n*7919%keys), value(n)); err != nil {
			t.Fatal(err)
		}
	}
	closeAll(t, s, st)

	var last RecoveringInfo
	opts.Device, opts.FixedIndex = objectless{disk.Reopen()}, false
	opts.Events.Recovering = func(i RecoveringInfo) {
		switch first := i.What != last.What; {
		case i.What == "log that fits in memory" && last.What == "": // comes first
		case i.What == "log" && first && last.Read == last.Bytes:
		case first || i.Read <= last.Read || i.Bytes != last.Bytes || i.Read > i.Bytes:
			t.Errorf("%v after %v", i, last)
		}
		last = i
	}
	st = open(t, opts)
	r := st.Recovery()
	if r.Index != "" || r.Records != writes || last.What != "log" || last.Read != r.Tail-r.ScannedFrom || last.Bytes != last.Read {
		t.Errorf("%v\n%v", r, last)
	}
	if m := st.Metrics(); m.Index.Growths < 2 {
		t.Errorf("the index has grown %d times", m.Index.Growths)
	}
	newest := map[uint64]uint64{}
	for n := range uint64(writes) {
		newest[n*7919%keys] = n
	}
	for k, n := range newest {
		readBack(st.Read(context.Background(), key8(k), nil)).Want(t, value(n), "key %d", k)
	}
	closeAll(t, st)
}
