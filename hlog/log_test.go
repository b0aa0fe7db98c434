package hlog

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/testrun"
)

const testPage = 512

// openLog opens a log of 8+8 byte records in eight small pages.
func openLog(t *testing.T, dev device.Device, begin, tail int64) (*Log, *epoch.Table) {
	t.Helper()
	return openLogWith(t, dev, begin, tail, Listener{})
}

func openLogWith(t *testing.T, dev device.Device, begin, tail int64, listener Listener) (*Log, *epoch.Table) {
	t.Helper()
	return openLogBy(t, dev, begin, tail, listener, nil)
}

func openLogBy(t *testing.T, dev device.Device, begin, tail int64, listener Listener, now func() time.Time) (*Log, *epoch.Table) {
	t.Helper()
	if err := dev.Start(tail); err != nil {
		t.Fatal(err)
	}
	table := epoch.New()
	l, err := Open(Config{
		Device: dev, Epoch: table, Layout: FixedLayout(8, 8), Begin: begin, Tail: tail,
		Memory: 8 * testPage, PageSize: testPage, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Listener: listener, now: now,
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

// visitEach returns what makes the visitors of a Scan: visit is called by one goroutine at a time.
func visitEach(visit func(addr int64, im Image) error) func() Visitor {
	mu := new(sync.Mutex)
	return func() Visitor { return eachVisitor{mu, visit} }
}

type eachVisitor struct {
	mu    *sync.Mutex
	visit func(addr int64, im Image) error
}

func (v eachVisitor) Visit(addr int64, im Image) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.visit(addr, im)
}

func (eachVisitor) End() error { return nil }

// TestScanFindsDamage changes bytes of a committed log. Recovery must not follow invalid
// links, nor take a hole for an empty page.
func TestScanFindsDamage(t *testing.T) {
	const few, many = testPage / 24 * 3 / 2, 20 * testPage / 24 // records: in memory, and beyond
	for name, tc := range map[string]struct {
		records uint64
		at      int64
		word    uint64
	}{
		"link to itself":         {few, FirstAddress + 24, uint64(NewHeader(FirstAddress+24, false))},
		"link ahead":             {few, FirstAddress, uint64(NewHeader(FirstAddress+24, false))},
		"link into a record":     {few, FirstAddress + 24, uint64(NewHeader(FirstAddress+8, false))},
		"hole at a page's start": {few, testPage, 0},
		"hole before the tail":   {few, testPage + 24, 0},
		"cold link to itself":    {many, FirstAddress + 24, uint64(NewHeader(FirstAddress+24, false))},
		"cold link ahead":        {many, 5 * testPage, uint64(NewHeader(5*testPage+24, false))},
		"cold hole":              {many, 3 * testPage, 0},
	} {
		t.Run(name, func(t *testing.T) {
			others := goleak.IgnoreCurrent()
			t.Cleanup(func() { testrun.NoLeaks(t, others) }) // when the logs are closed
			dev := device.NewMemory()
			l, table := openLog(t, dev, FirstAddress, FirstAddress)
			handle := table.Register()
			for n := range tc.records {
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
			again.scanRun = testPage
			if _, err := again.Scan(FirstAddress, tail, visitEach(func(int64, Image) error { return nil }), nil); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Scan: %v", err)
			}
		})
	}
}
