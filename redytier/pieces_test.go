package redytier

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// reopened returns a device over a cache that another one may have used before.
func reopened(t *testing.T, c *Cache, kept Companion, used bool) *Device {
	t.Helper()
	d := newDevice(c, kept, false)
	if used {
		data, err := kept.ReadCompanion()
		if err != nil {
			t.Fatal(err)
		}
		state, err := parseCompanion(data)
		if err != nil || !state.fits(d.pieces) {
			t.Fatalf("companion %s: %v", data, err)
		}
		d.pieces.adopt(state.Lives)
	}
	d.pieces.run()
	t.Cleanup(func() { d.pieces.abort() })
	return d
}

// A log is written, and its device ends, in order or by a crash. The next device holds what was
// written without copying it: all of it, but for the piece in which the log ends and, after a
// crash, those of the last write. Nothing of what the next life has not recovered is read.
func TestNextLifeIsWarm(t *testing.T) {
	forDevices(t, 2, 2<<20, func(t *testing.T, c *cluster, configuration Configuration) {
		const capacity, page, pages = 512 << 10, 32 << 10, 40
		cache := c.create(t, Config{Capacity: capacity, Configuration: configuration, RegionSize: 64 << 10, Logger: slog.New(slog.DiscardHandler)})
		r := rand.New(rand.NewPCG(1, 1))
		log := make([]byte, pages*page)
		for i := range log {
			log[i] = byte(r.Uint32())
		}
		var kept ringCompanion
		life := func(d *Device, from, end, overwritten int) { // overwritten: by a log that was longer
			t.Helper()
			ssd := device.NewMemory()
			tiered := device.NewTieredWith(device.TieredOptions{Logger: slog.New(slog.DiscardHandler), RefillRate: -1}, notClosed{connected{d}}, ssd)
			if err := ssd.Start(0); err != nil {
				t.Fatal(err)
			}
			fill := devicetest.NewPump(t, ssd, 4)
			for at := 0; at < from; at += page {
				fill.Write(bytes.Clone(log[at:min(at+page, from)]), int64(at), nil)
			}
			fill.Close()
			if err := tiered.Start(int64(from)); err != nil {
				t.Fatal(err)
			}
			testrun.Until(t, "all pieces are checked", func() bool { // what is right is held, other pieces are holes
				d.holes.mu.Lock()
				defer d.holes.mu.Unlock()
				return d.holes.current().unchecked.missing(d.Begin()) == 0
			})
			if missing, most := d.Missing(), int64(overwritten+2*page); from > 0 && missing > most {
				t.Errorf("%d bytes are missing of a log up to %d, want at most %d", missing, from, most)
			}
			p := devicetest.NewPump(t, tiered, 8)
			for at := from; at < end; {
				n := min(page-at%page, end-at)
				p.Write(bytes.Clone(log[at:at+n]), int64(at), nil)
				at += n
			}
			p.Drain()
			for range 200 {
				addr := max(0, r.IntN(end)-r.IntN(2)*page)
				n := 1 + r.IntN(min(page, end-addr))
				p.Read(make([]byte, n), int64(addr), log[addr:addr+n])
			}
			p.Close()
			testrun.Until(t, "all records are written", func() bool { // a crash loses no record but those of the last write
				d.pieces.mu.Lock()
				defer d.pieces.mu.Unlock()
				return len(d.pieces.current.due) == 0
			})
			if err := tiered.Close(); err != nil {
				t.Error(err)
			}
		}
		d := reopened(t, cache, &kept, false)
		life(d, 0, 30*page, 0) // the log wraps
		d.pieces.close(t.Context())
		d = reopened(t, cache, &kept, true)
		life(d, 30*page, 36*page, 0)
		d.pieces.abort()
		for i := range log[33*page:] { // the log continues below, with other bytes
			log[33*page+i] = byte(r.Uint32())
		}
		d = reopened(t, cache, &kept, true)
		life(d, 33*page, 40*page, 3*page)
		d.pieces.abort()
		d = reopened(t, cache, &kept, true)
		life(d, 40*page-1000, 40*page-1000, 0)
		d.pieces.close(t.Context())
	})
}

// notClosed is a device that goes on when its tiered device is closed.
type notClosed struct{ connected }

func (notClosed) Close() error { return nil }

// A piece that a read has met is checked before others.
func TestReadsAskForChecks(t *testing.T) {
	m := newRingModel(t, 1, true)
	d, p := m.d, m.d.pieces
	m.memory.calm = true
	write := func(addr int64) {
		q := m.queues[0]
		if err := q.Write(bytes.Repeat([]byte{1}, 64), addr, 1); err != nil {
			t.Fatal(err)
		}
		var done [1]device.Completion
		for q.Poll(done[:]) == 0 {
		}
	}
	from := (m.settled() + p.size() - 1) &^ (p.size() - 1)
	for addr := from; addr < from+10*p.size(); addr += 64 {
		write(addr)
	}
	for p.step() || p.checks.pending > 0 {
	}
	if err := d.Start(from + 9*p.size()); err != nil {
		t.Fatal(err)
	}
	asked := from + 2*p.size()
	if err := m.queues[0].Read(make([]byte, 10), asked, 1); err == nil {
		t.Fatal("an unchecked piece is read")
	}
	p.checks.slots = p.checks.slots[:1]
	for d.holes.current().unchecked.has(asked >> p.shift) {
		p.step()
	}
	if left := d.holes.current().unchecked.left; left < 6 {
		t.Errorf("%d pieces are left after the first check", left)
	}
	if err := m.queues[0].Read(make([]byte, 10), asked, 1); err != nil {
		t.Error(err)
	}
}

// What a companion says of lives decides which pieces are believed: those that end below the
// tails of all later lives, and none of a life that is not known.
func TestLives(t *testing.T) {
	var l lives
	for _, tail := range []int64{100, 300, 200, 400} {
		l = l.begin(tail, 0)
	}
	for i, want := range []int64{200, 200, 400, maxLog} {
		if !l.wrote(l[i].Number, want) || l.wrote(l[i].Number, want+1) {
			t.Errorf("life %d is believed up to %d, want %d", i, l[i].Below, want)
		}
	}
	if l.wrote(l[0].Number^l[1].Number, 0) {
		t.Error("an unknown life is believed")
	}
	last := l.current()
	l = l.begin(500, 200) // the ring has nothing of the first two any more
	if len(l) != 3 || l[1].Number != last || l[1].Below != 500 {
		t.Errorf("lives %v", l)
	}
	for range 2 * maxLives {
		l = l.begin(1000, 0)
	}
	if len(l) != maxLives {
		t.Errorf("%d lives, want %d", len(l), maxLives)
	}
}

func FuzzParseCompanion(f *testing.F) {
	f.Add([]byte(`{"version":1,"cache":{"version":1,"cache":"c","capacity":4096},"piece":64,"ring":2048,"lives":[{"number":1,"below":2}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"lives":[{"below":-1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseCompanion(data)
		if err == nil && (s.Version != companionVersion || len(s.Lives) > maxLives) {
			t.Errorf("%q is %+v", data, s)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add((&pieceRecord{1, 2, 3}).append(nil))
	f.Add(make([]byte, recordSize))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, ok := parseRecord(data); ok && !bytes.Equal(r.append(nil), data) {
			t.Errorf("%x is %+v", data, r)
		}
	})
}

// Every layout has room for a record of each piece, and a piece is part of one segment.
func TestLayout(t *testing.T) {
	for _, capacity := range []int64{MinRegionSize, 5000, 16 << 10, 300_000, 2 << 20, 1<<30 - 1, 1 << 30, 1 << 40, maxCapacity} {
		ring, shift, table := layout(capacity)
		piece := int64(1) << shift
		records := ring.size >> shift * recordSize
		if ring.size%piece != 0 || piece > 1<<ring.shift || table < ring.size || table+records > capacity {
			t.Errorf("capacity %d: ring %d, piece %d, records at %d", capacity, ring.size, piece, table)
		}
		if capacity >= 4<<20 && (piece != pieceSize || ring.size < capacity/32*30) {
			t.Errorf("capacity %d: ring %d, piece %d", capacity, ring.size, piece)
		}
	}
}
