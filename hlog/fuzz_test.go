package hlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/epoch"
)

// logBytes returns pages of records from FirstAddress on, in chains of two.
func logBytes(layout Layout, pages int) []byte {
	b := make([]byte, pages*testPage)
	at := FirstAddress
	for n := byte(0); ; n++ {
		value := []byte{n, 2, 3, 4, 5, 6, 7, 8}
		expires := int64(n % 3)
		size := layout.Size(8, len(value), expires != 0)
		if at%testPage+size > testPage {
			at = (at/testPage + 1) * testPage // the rest of the page stays unused
		}
		if at+size > len(b) {
			return b[FirstAddress:at]
		}
		r, memory := memoryRecord(size)
		layout.Fill(r, NewHeader(int64(at-size)*int64(n%2), n%5 == 4), []byte("key-----"), value, expires)
		if n%7 == 6 {
			r.Invalidate()
		}
		copy(b[at:], memory)
		at += size
	}
}

// put writes to a device that is started.
func put(t *testing.T, dev device.Device, b []byte, addr int64) {
	t.Helper()
	if c := devicetest.Write(t, dev, b, addr); c.Err != nil {
		t.Fatal(c.Err)
	}
}

// FuzzPages opens a log of any bytes. A scan accepts it or reports corruption. In an accepted
// log a walk from any address, and Inspect, find the same records.
func FuzzPages(f *testing.F) {
	for _, layout := range []Layout{FixedLayout(8, 8), VariableLayout()} {
		for _, pages := range []int{1, 3, 9} {
			b := logBytes(layout, pages)
			f.Add(layout.Fixed(), b, uint16(0))
			b = bytes.Clone(b)
			b[len(b)/2] ^= 0x40
			f.Add(layout.Fixed(), b, uint16(600))
		}
	}
	f.Fuzz(func(t *testing.T, fixed bool, b []byte, from uint16) {
		layout := VariableLayout()
		if fixed {
			layout = FixedLayout(8, 8)
		}
		b = b[:min(len(b), 1<<14)&^7]
		tail := int64(FirstAddress + len(b))
		dev := device.NewMemory()
		if err := dev.Start(FirstAddress); err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			put(t, dev, append(make([]byte, FirstAddress), b...), 0)
		}
		table := epoch.New()
		l, err := Open(Config{
			Device: dev, Epoch: table, Layout: layout, Begin: FirstAddress, Tail: tail,
			Memory: 4 * testPage, PageSize: testPage, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}()
		type found struct {
			address    int64
			key, value string
			expires    int64
		}
		var all []found
		l.scanRun = testPage
		_, err = l.Scan(FirstAddress, tail, visitEach(func(addr int64, im Image) error {
			if addr < FirstAddress || addr+int64(len(im.Key)+len(im.Value)) > tail {
				t.Errorf("record of %d+%d bytes at %d of a log up to %d", len(im.Key), len(im.Value), addr, tail)
			}
			all = append(all, found{addr, string(im.Key), string(im.Value), im.Expires})
			return nil
		}), nil)
		slices.SortFunc(all, func(a, b found) int { return int(a.address - b.address) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("scan: %v", err)
			}
			return
		}
		var inspected []found
		whole := true
		Inspect(bytes.NewReader(append(make([]byte, FirstAddress), b...)), layout, testPage, FirstAddress, tail, func(addr int64, im Image) {
			inspected = append(inspected, found{addr, string(im.Key), string(im.Value), im.Expires})
		}, func(int64, int64, error) { whole = false }) // it checks links that are not followed in memory, too
		if whole && !slices.Equal(all, inspected) {
			t.Errorf("the scan finds %d records, Inspect %d", len(all), len(inspected))
		}
		w := l.NewWalker(table.Register())
		if err := w.Walk(context.Background(), int64(from), tail); err != nil {
			t.Fatal(err)
		}
		for {
			ok, err := w.Next(context.Background())
			if err != nil {
				t.Fatalf("the scan takes it, a walk does not: %v", err)
			}
			for len(all) > 0 && all[0].address < int64(from) {
				all = all[1:]
			}
			if !ok {
				break
			}
			address, im := w.Record()
			if len(all) == 0 || all[0] != (found{address, string(im.Key), string(im.Value), im.Expires}) {
				t.Fatalf("the walk finds %x at %d, the scan next %+v", im.Key, address, all[:min(len(all), 1)])
			}
			all = all[1:]
		}
		if len(all) > 0 {
			t.Errorf("the walk misses %d records from %d on", len(all), all[0].address)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
