package kv

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
)

// TestUnknownVerdictChangesNothing returns an invalid verdict. It is an error of the operation
// and changes nothing: in memory, in place or not, and on the device.
func TestUnknownVerdictChangesNothing(t *testing.T) {
	const unknown = Remove + 1
	modify := func(u *Update) Verdict { u.New = append(u.New, "fresh..."...); return unknown }
	modifyWord := func(uint64, bool) (uint64, Verdict) { return 7, unknown }
	for name, sizes := range map[string][2]int{"words": {8, 8}, "fixed": {8, 16}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			st := open(t, small(device.NewMemory(), sizes[0], sizes[1]))
			s := st.NewSession()
			value := func(n uint64) []byte { return append(key8(n), make([]byte, max(sizes[1]-8, 0))...) }
			const keys = 1000 // much more than memory holds
			for n := range uint64(keys) {
				if err := s.Upsert(key8(n), value(n)); err != nil {
					t.Fatal(err)
				}
			}
			tail := st.Metrics().Log.Tail
			for _, n := range []uint64{0, keys - 1, keys} {
				ops := []Op{{Kind: OpRMW, Key: key8(n), Modify: modify}}
				if sizes[1] <= 8 {
					ops = append(ops, Op{Kind: OpRMW, Key: key8(n), ModifyWord: modifyWord})
					if err := s.RMWWord(key8(n), modifyWord); err == nil {
						t.Errorf("key %d: a word was modified", n)
					}
				}
				if err := s.RMW(key8(n), modify); err == nil {
					t.Errorf("key %d was modified", n)
				}
				if err := s.Do(context.Background(), ops); err == nil {
					t.Errorf("key %d was modified in a batch", n)
				}
				got, err := s.Read(key8(n), nil)
				if there := n < keys; there && !bytes.Equal(got, value(n)) || there != (err == nil) {
					t.Errorf("key %d is %q, %v", n, got, err)
				}
			}
			if now := st.Metrics().Log.Tail; now != tail {
				t.Errorf("the log grew by %d bytes", now-tail)
			}
			closeAll(t, s, st)
		})
	}
}

// TestNilOpIsRefused checks that a nil Op is refused and the session remains usable.
func TestNilOpIsRefused(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	for name, err := range map[string]error{"Run": s.Run(nil), "Store.Run": st.Run(context.Background(), nil), "Submit": s.Submit(nil)} {
		if !errors.Is(err, errNoOp) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Upsert(key8(1), key8(2)); err != nil || s.Pending() != 0 {
		t.Errorf("%v, %d pending", err, s.Pending())
	}
	closeAll(t, s, st)
}

// TestOpenRefusesBadOptions checks that invalid and contradictory options are refused. The
// device is unchanged.
func TestOpenRefusesBadOptions(t *testing.T) {
	dev := device.NewMemory()
	for name, change := range map[string]func(*Options){
		"no device":            func(o *Options) { o.Device = nil },
		"memory":               func(o *Options) { o.Memory = -1 },
		"little memory":        func(o *Options) { o.Memory = 1 },
		"endless memory":       func(o *Options) { o.Memory = math.MaxInt64 },
		"less at most":         func(o *Options) { o.MaxMemory = 1 },
		"read cache":           func(o *Options) { o.ReadCache = 1 },
		"read cache NaN":       func(o *Options) { o.ReadCache = math.NaN() },
		"mutable":              func(o *Options) { o.MutableFraction = math.NaN() },
		"keys only":            func(o *Options) { o.ValueSize = 0 },
		"negative":             func(o *Options) { o.KeySize, o.ValueSize = -8, -8 },
		"endless records":      func(o *Options) { o.KeySize, o.ValueSize = math.MaxInt/2, math.MaxInt/2 },
		"records of a GiB":     func(o *Options) { o.ValueSize = 1 << 30 },
		"records":              func(o *Options) { o.Records = -1 },
		"endless keys":         func(o *Options) { o.Records = math.MaxInt64 },
		"page size":            func(o *Options) { o.PageSize = 511 },
		"queue depth":          func(o *Options) { o.QueueDepth = -1 },
		"unknown checkpoint":   func(o *Options) { o.Recover = "gone" },
		"kept":                 func(o *Options) { o.Checkpoints.Keep = -1 },
		"checkpoints every":    func(o *Options) { o.Checkpoints.Every = -1 },
		"checkpoint kind":      func(o *Options) { o.Checkpoints.Kind = Index + 1 },
		"dead share":           func(o *Options) { o.Compaction.DeadShare = 1 },
		"compaction's share":   func(o *Options) { o.Compaction.Share = 2 },
		"compaction every":     func(o *Options) { o.Compaction.Every = -1 },
		"compaction of a log":  func(o *Options) { o.Compaction.LogSize = -1 },
		"compaction by method": func(o *Options) { o.Compaction.Method = CompactByScan + 1 },
		"checkpoints of what is not kept": func(o *Options) {
			o.Device = device.NewMemoryWith(device.MemoryOptions{Volatile: true})
			o.Checkpoints.Every = time.Hour
		},
	} {
		opts := small(dev, 8, 8)
		change(&opts)
		if st, err := Open(opts); err == nil {
			t.Errorf("%s: opened", name)
			closeAll(t, st)
		}
	}
	closeAll(t, open(t, small(dev, 8, 8)))
}
