package hlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/testrun"
)

// written is a record that the test appended.
type written struct {
	address    int64
	key, value []byte
	expires    int64
	tombstone  bool
}

// walkLog is a log of variable-length records, with a list of all records.
type walkLog struct {
	*Log
	table   *epoch.Table
	handle  *epoch.Handle
	records []written
}

func newWalkLog(t *testing.T, dev device.Device, page int) *walkLog {
	t.Helper()
	if err := dev.Start(0); err != nil {
		t.Fatal(err)
	}
	table := epoch.New()
	l, err := Open(Config{
		Device: dev, Epoch: table, Layout: VariableLayout(),
		Memory: 4 * int64(page), PageSize: page, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &walkLog{Log: l, table: table, handle: table.Register()}
}

// append adds a record. Invalid records are not listed.
func (l *walkLog) append(key, value []byte, expires int64, tombstone, invalid bool) error {
	for {
		l.handle.Enter()
		addr, ok := l.Allocate(l.layout.Size(len(key), len(value), expires != 0))
		if ok {
			r := l.At(addr)
			l.layout.Fill(r, NewHeader(0, tombstone), key, value, expires)
			if invalid {
				r.Invalidate()
			}
		}
		l.handle.Leave()
		if ok {
			if !invalid {
				l.records = append(l.records, written{addr, key, value, expires, tombstone})
			}
			return nil
		}
		if err := l.WaitForSpace(context.Background()); err != nil {
			return err
		}
	}
}

// random appends a record with a value of up to max bytes.
func (l *walkLog) random(rng *rand.Rand, max int) error {
	key := binary.LittleEndian.AppendUint64(nil, rng.Uint64())[:1+rng.IntN(8)]
	value := bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(max+1))
	var expires int64
	if rng.IntN(5) == 0 {
		expires = 1 + rng.Int64N(1000)
	}
	return l.append(key, value, expires, rng.IntN(7) == 0, rng.IntN(9) == 0)
}

// expect checks that a walk finds the listed records in [from, to).
func (l *walkLog) expect(w *Walker, from, to int64) error {
	for _, want := range l.records {
		if want.address < from || want.address >= to {
			continue
		}
		found, err := w.Next(context.Background())
		if err != nil || !found {
			return fmt.Errorf("the walk ends before the record at %d: %w", want.address, err)
		}
		addr, im := w.Record()
		if addr != want.address || !bytes.Equal(im.Key, want.key) || !bytes.Equal(im.Value, want.value) ||
			im.Expires != want.expires || im.Header.Tombstone() != want.tombstone {
			return fmt.Errorf("found %x = %d bytes at %d, expires %d; want %+v", im.Key, len(im.Value), addr, im.Expires, want)
		}
	}
	if found, err := w.Next(context.Background()); err != nil || found {
		addr, _ := w.Record()
		return fmt.Errorf("a record at %d behind the end: %w", addr, err)
	}
	return nil
}

// TestWalkFindsEveryRecord walks logs many times larger than memory, between any two
// addresses, and resumes after stops. Pages are smaller and much larger than the pieces that
// are read ahead.
func TestWalkFindsEveryRecord(t *testing.T) {
	for name, tc := range map[string]struct{ page, value, records int }{
		"small pages":            {512, 100, 600},
		"pages of many pieces":   {128 << 10, 300, 8000},
		"records of many pieces": {256 << 10, 100 << 10, 40},
	} {
		t.Run(name, func(t *testing.T) {
			l := newWalkLog(t, device.NewMemory(), tc.page)
			rng := rand.New(rand.NewPCG(1, uint64(tc.page)))
			for range tc.records {
				if err := l.random(rng, tc.value); err != nil {
					t.Fatal(err)
				}
			}
			end := l.Settle()
			if l.Head() < int64(tc.page) || l.Head() >= end {
				t.Fatalf("head %d of %d", l.Head(), end)
			}
			w := l.NewWalker(l.handle)
			defer func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}()
			for range 20 {
				from, to := rng.Int64N(end), rng.Int64N(end+1)
				if err := errors.Join(w.Walk(context.Background(), from, to), l.expect(w, from, to)); err != nil {
					t.Fatalf("from %d to %d: %v", from, to, err)
				}
			}
			for i := 0; i < len(l.records); {
				n := 1 + rng.IntN(20)
				from, to := l.records[i].address, end
				if i+n < len(l.records) {
					to = l.records[i+n].address
				}
				if err := w.Walk(context.Background(), from, end); err != nil {
					t.Fatal(err)
				}
				for range min(n, len(l.records)-i) {
					if found, err := w.Next(context.Background()); !found || err != nil {
						t.Fatal(found, err)
					}
				}
				if err := errors.Join(w.Walk(context.Background(), w.Position(), to), l.expect(w, to, to)); err != nil {
					t.Fatalf("going on at %d: %v", w.Position(), err)
				}
				i += n
			}
		})
	}
}

// TestWalkBesideWriters walks repeatedly while the log is written and evicted.
func TestWalkBesideWriters(t *testing.T) {
	l := newWalkLog(t, device.NewMemory(), 1024)
	rng := rand.New(rand.NewPCG(1, 2))
	var wg sync.WaitGroup
	var mu sync.Mutex // guards records
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for range 3000 {
			mu.Lock()
			err := l.random(rng, 100)
			mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	w := l.NewWalker(l.table.Register())
	r := rand.New(rand.NewPCG(testrun.Seed(t, 0), 0))
	for running := true; running && !t.Failed(); {
		select {
		case <-done:
			running = false
		default:
		}
		from := max(0, l.Tail()-r.Int64N(20<<10))
		to := l.Settle()
		mu.Lock()
		known := walkLog{Log: l.Log, records: slices.Clone(l.records)}
		mu.Unlock()
		if err := errors.Join(w.Walk(context.Background(), from, to), known.expect(w, from, to)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestWalkFollowsTruncation truncates pages during a walk.
func TestWalkFollowsTruncation(t *testing.T) {
	l := newWalkLog(t, device.NewMemoryWith(device.MemoryOptions{}), 1<<20)
	rng := rand.New(rand.NewPCG(1, 3))
	for l.Tail() < 9<<20 {
		if err := l.random(rng, 2000); err != nil {
			t.Fatal(err)
		}
	}
	w := l.NewWalker(l.handle)
	end := l.Settle()
	if err := w.Walk(context.Background(), 0, end); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if found, err := w.Next(context.Background()); !found || err != nil {
			t.Fatal(found, err)
		}
	}
	const begin = 4 << 20
	l.SetBegin(begin)
	if err := l.Truncate(l.Begin()); err != nil {
		t.Fatal(err)
	}
	if err := l.expect(w, begin, end); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestWalkRefusesDamage changes bytes on the device, and fails reads.
func TestWalkRefusesDamage(t *testing.T) {
	dev := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	l := newWalkLog(t, dev, 512)
	rng := rand.New(rand.NewPCG(1, 4))
	for range 200 {
		if err := l.random(rng, 50); err != nil {
			t.Fatal(err)
		}
	}
	end := l.Settle()
	w := l.NewWalker(l.handle)
	walk := func() error {
		return errors.Join(w.Walk(context.Background(), 0, end), l.expect(w, 0, end))
	}
	write := func(word uint64, at int64) {
		t.Helper()
		put(t, dev, binary.LittleEndian.AppendUint64(nil, word), at)
	}
	victim := l.records[20]
	for name, header := range map[string]uint64{
		"a hole at a page's start": 0,
		"no record":                42,
		"a locked record":          uint64(NewHeader(0, false) | headerLocked),
		"a link ahead":             uint64(NewHeader(victim.address+8, false)),
	} {
		at := victim.address
		if header == 0 {
			at = 512
		}
		write(header, at)
		if err := walk(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		h := NewHeader(0, victim.tombstone)
		if victim.expires != 0 {
			h |= headerExpires
		}
		write(uint64(h), victim.address)
		if header == 0 {
			write(uint64(l.headerAt(512)), 512)
		}
	}
	write(uint64(newLengths(8, 8, 1<<20)), victim.address+8)
	if err := walk(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("lengths over the page's end: %v", err)
	}
	write(uint64(newLengths(len(victim.key), len(victim.value), pad(len(victim.value)))), victim.address+8)
	if err := walk(); err != nil {
		t.Errorf("mended: %v", err)
	}
	dev.Set(device.FaultyOptions{ReadError: 1})
	if err := walk(); !errors.Is(err, device.ErrFault) {
		t.Errorf("with reads that fail: %v", err)
	}
	dev.Set(device.FaultyOptions{Delay: 0.5})
	if err := walk(); err != nil {
		t.Errorf("with reads that overtake each other: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// headerAt returns the header of the listed record at an address, or an invalid header.
func (l *walkLog) headerAt(addr int64) Header {
	for _, r := range l.records {
		if r.address == addr {
			h := NewHeader(0, r.tombstone)
			if r.expires != 0 {
				h |= headerExpires
			}
			return h
		}
	}
	return NewHeader(0, false) | headerInvalid
}
