package hlog

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
)

const testPage = 512

// openLog opens a log of 8+8 byte records in eight small pages.
func openLog(t *testing.T, dev device.Device, begin, tail int64) (*Log, *epoch.Table) {
	t.Helper()
	return openLogWith(t, dev, begin, tail, Listener{})
}

func openLogWith(t *testing.T, dev device.Device, begin, tail int64, listener Listener) (*Log, *epoch.Table) {
	t.Helper()
	if err := dev.Start(tail); err != nil {
		t.Fatal(err)
	}
	table := epoch.New()
	l, err := Open(Config{
		Device: dev, Epoch: table, Layout: FixedLayout(8, 8), Begin: begin, Tail: tail,
		Memory: 8 * testPage, PageSize: testPage, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Listener: listener,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, table
}

// add appends a record, outside any chain unless previous is given.
func add(l *Log, handle *epoch.Handle, n uint64, previous int64) (int64, error) {
	for {
		handle.Enter()
		addr, ok := l.Allocate(l.layout.Size(8, 8, false))
		if ok {
			key := binary.LittleEndian.AppendUint64(nil, n)
			l.layout.Fill(l.At(addr), NewHeader(previous, false), key, key, 0)
		}
		handle.Leave()
		if ok {
			return addr, nil
		}
		if err := l.WaitForSpace(context.Background()); err != nil {
			return 0, err
		}
	}
}

// TestAddressesEndWithThePages fills the last page that the tail can represent.
func TestAddressesEndWithThePages(t *testing.T) {
	last := addressEnd(testPage) - testPage
	l, table := openLog(t, device.NewNull(), last, last)
	handle := table.Register()
	for n := uint64(0); ; n++ {
		addr, err := add(l, handle, n, 0)
		if err != nil {
			if n != testPage/24 {
				t.Errorf("%d records in the last page: %v", n, err)
			}
			return
		}
		if addr < last || addr >= addressEnd(testPage) {
			t.Fatalf("record %d at %d, outside the last page at %d", n, addr, last)
		}
	}
}

// TestPageThatTheLastTierMissesIsNotEvicted: the last tier fails a page that the commit point
// has stored. The log must not evict the page.
func TestPageThatTheLastTierMissesIsNotEvicted(t *testing.T) {
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 1, Delay: 1})
	dev := device.NewTieredWith(device.TieredOptions{
		CommitPoint: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, device.NewMemory(), last)
	l, table := openLog(t, dev, FirstAddress, FirstAddress)
	handle := table.Register()
	var err error
	for n := uint64(0); n < 1000 && err == nil; n++ {
		_, err = add(l, handle, n, 0)
	}
	if !errors.Is(err, device.ErrFault) {
		t.Errorf("writes went on over a hole in the last tier: %v", err)
	}
	if head := l.Head(); head != FirstAddress {
		t.Errorf("evicted up to %d, of which the last tier misses the first page", head)
	}
}

// TestScanFindsDamage changes bytes of a committed log. Recovery must not follow invalid
// links, nor take a hole for an empty page.
func TestScanFindsDamage(t *testing.T) {
	for name, tc := range map[string]struct {
		at   int64
		word uint64
	}{
		"link to itself":         {FirstAddress + 24, uint64(NewHeader(FirstAddress+24, false))},
		"link ahead":             {FirstAddress, uint64(NewHeader(FirstAddress+24, false))},
		"link into a record":     {FirstAddress + 24, uint64(NewHeader(FirstAddress+8, false))},
		"hole at a page's start": {testPage, 0},
		"hole before the tail":   {testPage + 24, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dev := device.NewMemory()
			l, table := openLog(t, dev, FirstAddress, FirstAddress)
			handle := table.Register()
			for n := range uint64(testPage / 24 * 3 / 2) {
				if _, err := add(l, handle, n, 0); err != nil {
					t.Fatal(err)
				}
			}
			var tail int64
			table.Exclusive(func() { tail = l.ShiftReadOnly() })
			if err := l.Persist(context.Background(), tail); err != nil {
				t.Fatal(err)
			}
			put(t, dev, binary.LittleEndian.AppendUint64(nil, tc.word), tc.at)
			again, _ := openLog(t, dev, FirstAddress, tail)
			if _, err := again.Scan(FirstAddress, tail, func(int64, Image) error { return nil }); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Scan: %v", err)
			}
		})
	}
}
