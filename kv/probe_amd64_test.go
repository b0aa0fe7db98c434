//go:build !race

package kv

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/redykv/redykv/device"
)

// TestProbesAgree asks every form that this processor has for the same keys: in
// memory, deleted, expiring, on the device, and not there at all.
func TestProbesAgree(t *testing.T) {
	if !vectors {
		t.Skip("this processor has no AVX2")
	}
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 64 << 10, Records: 10_000})
	s := st.NewSession()
	const keys = 10_000
	want := map[uint64]bool{} // in memory and plain
	for n := range uint64(keys) {
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
		var err error
		switch n % 5 {
		case 1:
			err = s.Delete(key8(n))
		case 2:
			err = s.Run(&Op{Kind: OpUpsert, Key: key8(n), Value: key8(n), Expires: 1 << 50})
		default:
			want[n] = true
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hits := map[string]int{}
	s.enter()
	s.leave()
	for n := range uint64(keys + 1000) {
		key, got := key8(n), make([]byte, 8)
		at, to := unsafe.Pointer(&key[0]), unsafe.Pointer(&got[0])
		var count counter
		forms := map[string]bool{"AVX2": readAVX2(&s.probe, at, to, &count)}
		if vectors2 {
			forms["AVX-512"] = readAVX512(&s.probe, at, to, &count)
		}
		_, e := s.table.find(st.hash(key))
		r, _, _, found := s.lookup(key, e.address(), s.view.Head)
		found = found && r.Header().Plain()
		for name, ok := range forms {
			if ok && (!found || !want[n] || !bytes.Equal(got, key)) {
				t.Errorf("%s finds %x of key %d", name, got, n)
			}
			if ok {
				hits[name]++
			}
			if stored := map[string]func(*probe, unsafe.Pointer, unsafe.Pointer, *counter) bool{
				"AVX2": storeAVX2, "AVX-512": storeAVX512}[name](&s.probe, at, at, &count); stored && !found {
				t.Errorf("%s stores key %d", name, n)
			}
		}
	}
	for name, n := range hits { // all but those behind another key of their tag, or in an overflow bucket
		if n != hits["AVX2"] || n < 500 {
			t.Errorf("%s finds %d keys, AVX2 %d", name, n, hits["AVX2"])
		}
	}
	closeAll(t, s, st)
}
