package goycsb

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

func TestKeySet(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		set, model := newKeySet(), map[string]bool{}
		key := rapid.StringMatching(`[a-d]{0,3}`)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				k := key.Draw(t, "key")
				set.insert(k)
				model[k] = true
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				set.remove(k)
				delete(model, k)
			},
			"store and read": func(t *rapid.T) {
				read, err := decodeKeySet(set.encode())
				if err != nil {
					t.Fatal(err)
				}
				set = read
			},
			"scan": func(t *rapid.T) {
				start, n := key.Draw(t, "start"), rapid.IntRange(-1, 10).Draw(t, "n")
				var want []string
				for k := range model {
					if k >= start {
						want = append(want, k)
					}
				}
				slices.Sort(want)
				want = want[:min(max(n, 0), len(want))]
				if got := set.from(nil, start, n); !slices.Equal(got, want) {
					t.Fatalf("from %q: %q, want %q", start, got, want)
				}
			},
		})
	})
}

func TestKeySetRefusesOtherBytes(t *testing.T) {
	set := newKeySet()
	set.insert("a")
	set.insert("b")
	data := set.encode()
	for i := range data {
		spoilt := slices.Clone(data)
		spoilt[i] ^= 1
		if _, err := decodeKeySet(spoilt); err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
		if _, err := decodeKeySet(data[:i]); err == nil {
			t.Errorf("cut at byte %d: no error", i)
		}
	}
}

func FuzzDecodeKeySet(f *testing.F) {
	set := newKeySet()
	set.insert("user1")
	f.Add(set.encode())
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if set, err := decodeKeySet(data); err == nil {
			set.encode()
		}
	})
}
