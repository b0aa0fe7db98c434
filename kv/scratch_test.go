package kv

import (
	"bytes"
	"context"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// A session keeps the memory of small values for the next call, and not that of large ones.
func TestScratchOfLargeValues(t *testing.T) {
	testrun.SkipRaced(t, "one goroutine operates")
	st, err := Open(Options{Device: device.NewMemory(), Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	s := st.NewSession()
	defer func() { _ = s.Close() }()
	key := []byte("key")
	add := func(u *Update) Verdict {
		u.New = append(append(u.New, u.Old...), 'x')
		return Put
	}
	for name, call := range map[string]func() error{
		"plain": func() error { return s.RMW(key, add) },
		"batch": func() error {
			ops := []Op{{Kind: OpRMW, Key: key, Modify: add}}
			if err := s.Do(context.Background(), ops); err != nil {
				return err
			}
			return ops[0].Err
		},
		"stream": func() error {
			op := Op{Kind: OpRMW, Key: key, Modify: add}
			if err := s.Submit(&op); err != nil {
				return err
			}
			if err := s.Wait(context.Background()); err != nil {
				return err
			}
			var done [1]*Op
			s.Poll(done[:])
			return op.Err
		},
	} {
		for _, c := range []struct {
			size  int
			keeps bool
		}{{keepScratch / 4, true}, {4 * keepScratch, false}} {
			if err := s.Upsert(key, bytes.Repeat([]byte{1}, c.size)); err != nil {
				t.Fatal(err)
			}
			if err := call(); err != nil {
				t.Fatal(err)
			}
			if keeps := cap(s.old)+cap(s.fresh) >= c.size; keeps != c.keeps || !c.keeps && (s.update.Old != nil || s.update.New != nil) {
				t.Errorf("%s: after a value of %d bytes, %d and %d are kept", name, c.size, cap(s.old), cap(s.fresh))
			}
		}
		if got, err := s.Read(key, nil); err != nil || len(got) != 4*keepScratch+1 {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
