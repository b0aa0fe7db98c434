package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// Pebble writes no log of its writes: redykv, beside which it is measured, has none either.
func TestPebbleHasNoLog(t *testing.T) {
	dir := t.TempDir()
	s, err := Open("pebble", Options{Dir: dir, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Write([]Pair{{key(1), make([]byte, 1<<20)}}); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		if st, err := os.Stat(log); err != nil || st.Size() > 0 {
			t.Errorf("%s: %v, %v", log, st, err)
		}
	}
}

// Every store returns what was written, in order, and nothing that was deleted.
func TestStores(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			s, err := Open(name, Options{Dir: t.TempDir(), Memory: 8 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			var pairs []Pair
			for n := range uint64(1000) {
				pairs = append(pairs, Pair{key(n), fmt.Appendf(nil, "value %d", n)})
			}
			if err := s.Write(pairs); err != nil {
				t.Fatal(err)
			}
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Delete(key(501)), s.Write([]Pair{{key(502), []byte("new")}})); err != nil {
				t.Fatal(err)
			}
			r, err := s.NewReader()
			if err != nil {
				t.Fatal(err)
			}
			if v, err := r.Get(key(7), []byte("it is ")); err != nil || string(v) != "it is value 7" {
				t.Errorf("%q, %v", v, err)
			}
			if v, err := r.Get(key(502), nil); err != nil || string(v) != "new" {
				t.Errorf("%q, %v", v, err)
			}
			for _, gone := range []uint64{501, 1000} {
				if v, err := r.Get(key(gone), nil); !errors.Is(err, ErrNotFound) {
					t.Errorf("%d: %q, %v", gone, v, err)
				}
			}
			var seen []string
			err = s.Scan(key(500), 3, func(k, v []byte) { seen = append(seen, fmt.Sprintf("%d:%s", binary.BigEndian.Uint64(k), v)) })
			if got := strings.Join(seen, " "); err != nil || got != "500:value 500 502:new 503:value 503" {
				t.Errorf("%s, %v", got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(Describe(name), "v") {
				t.Error(Describe(name))
			}
		})
	}
	if !strings.Contains(Describe("badger"), "read_ahead_kb") || strings.Contains(Describe("bbolt"), "read_ahead_kb") {
		t.Errorf("%s; %s", Describe("badger"), Describe("bbolt"))
	}
	if env := Environment("pebble"); len(env) != 1 || env[0] != "MALLOC_ARENA_MAX=1" || Environment("bbolt") != nil || Environment("rocks") != nil {
		t.Errorf("environment of pebble: %v", env)
	}
	if _, err := Open("rocks", Options{}); err == nil || !strings.Contains(err.Error(), "pebble, badger, bbolt") {
		t.Error(err)
	}
	if _, err := Open("pebble", Options{Dir: "/proc/nowhere"}); err == nil {
		t.Error("a store where there can be none")
	}
}
