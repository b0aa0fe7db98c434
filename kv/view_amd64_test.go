//go:build !race

package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/index"
)

// TestFormsAgree makes plain calls in every form that this processor supports, with keys that
// are in memory, deleted, expiring, on the device, or not stored.
func TestFormsAgree(t *testing.T) {
	if !vectors {
		t.Skip("this processor has no AVX2")
	}
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 128 << 10, Records: 10_000})
	s := st.NewSession()
	const keys = 10_000
	want := putUnlike(t, s, keys, key8, key8) // in memory and plain
	// Each form runs only if its word of the view is the epoch. Calls that go the general way
	// fail.
	other := errors.New("not direct")
	s.unusable = other
	forms := map[string]*uint64{"AVX2": &s.view.narrow}
	if vectors2 {
		forms["AVX-512"] = &s.view.wide
	}
	hits := map[string]int{}
	for n := uint64(0); n < keys+1000; n++ {
		s.enter() // the current epoch
		s.leave()
		key, hit := key8(n), map[string]int{}
		_, e := s.view.index.Find(st.hash(key))
		r, _, _, found := s.lookup(key, e.Address(), s.view.head)
		found = found && r.Header().Plain()
		for name, may := range forms {
			s.allowDirect(false)
			*may = s.view.epoch
			got, err := s.Read(key, nil)
			if !errors.Is(err, other) {
				t.Fatalf("%s reads %x, %v without room for it", name, got, err)
			}
			got, err = s.Read(key, make([]byte, 1, 9))
			if err == nil && (!found || !want[n] || !bytes.Equal(got[1:], key)) {
				t.Errorf("%s finds %x of key %d", name, got, n)
			}
			if err == nil {
				hit[name]++
			}
			if s.Upsert(key, key) == nil && !found {
				t.Errorf("%s stores key %d", name, n)
			}
			saw := uint64(0)
			modify := func(u *Update) Verdict {
				saw = binary.LittleEndian.Uint64(u.Old)
				u.New = append(u.New, key...)
				return Put
			}
			if s.RMW(key, modify) == nil && (!found || saw != n) {
				t.Errorf("%s modifies %d of key %d", name, saw, n)
			}
			word := func(old uint64, _ bool) (uint64, Verdict) { saw = old; return old, Put }
			if s.RMWWord(key, word) == nil && (!found || saw != n) {
				t.Errorf("%s modifies the word %d of key %d", name, saw, n)
			}
		}
		if atomic.LoadUint64(s.view.current) != s.view.epoch { // the epoch has changed, so no form was allowed
			n--
			continue
		}
		for name, found := range hit {
			hits[name] += found
		}
	}
	s.unusable = nil
	for name, n := range hits { // of all keys but those behind another key of their chain or in an overflow bucket
		if n != hits["AVX2"] || n < 500 {
			t.Errorf("%s finds %d keys, AVX2 %d", name, n, hits["AVX2"])
		}
	}
	closeAll(t, s, st)
}

// TestScansAgree scans in every form that this processor supports. The buckets hold entries
// that match the hashes, that differ by one bit, and that are tentative or unused.
func TestScansAgree(t *testing.T) {
	if !vectors {
		t.Skip("this processor has no AVX2")
	}
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	s.enter()
	p := s.view
	s.leave()
	const buckets = 16
	memory := make([]uint64, buckets*index.BucketSize/8)
	p.buckets, p.mask = unsafe.Pointer(&memory[0]), buckets-1
	p.head, p.headUp = 0, 0
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 200 {
		var hashes [laneSize]uint64
		for i := range hashes {
			hashes[i] = r.Uint64()
			bucket := memory[hashes[i]&p.mask*index.BucketSize/8:][:bucketEntries]
			e := index.EntryOf(hashes[i], uint(p.tag&63)).WithAddress(r.Int64N(1 << addressBits))
			switch r.IntN(4) {
			case 0:
				e ^= 1 << (addressBits + r.IntN(tagBits))
			case 1:
				e |= index.Tentative
			case 2:
				e &^= index.Used
			}
			bucket[r.IntN(len(bucket))] = uint64(e)
		}
		for _, n := range []int{0, 1, 7, laneSize} {
			var want, avx2, avx512 [laneSize]index.Place
			absent := p.scanWords(hashes[:n], want[:n])
			for _, place := range want {
				if !place.None() {
					found++
				}
			}
			if got := scanAVX2(&p, &hashes[0], &avx2[0], n); avx2 != want || got != absent {
				t.Fatalf("AVX2 finds %v but for %d, want %v but for %d", avx2, got, want, absent)
			}
			if !vectors2 {
				continue
			}
			if got := scanAVX512(&p, &hashes[0], &avx512[0], n); avx512 != want || got != absent {
				t.Fatalf("AVX-512 finds %v but for %d, want %v but for %d", avx512, got, want, absent)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d of the hashes were found", found)
	}
	closeAll(t, s, st)
}
