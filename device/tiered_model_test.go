package device_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// TestTieredAgainstModel runs random logs on random stacks of faulty tiers and compares every
// byte with an array. The last tier is slow and gets stuck, but keeps all writes. The others
// inject every fault that they report.
func TestTieredAgainstModel(t *testing.T) {
	seeds := testrun.Scale(10, 40, 1000)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newTieredModel(t, uint64(seed))
			m.memories()
			m.run()
		})
	}
}

const modelPage = 4096

// tieredModel is one run: a log whose pages are written in order, read below the released
// address, truncated, synced and reopened.
type tieredModel struct {
	t       *testing.T
	r       *rand.Rand
	bytes   []byte // expected byte at every address
	next    int    // next page to write
	pending map[int]bool
	begin   int // lowest address not truncated

	commit int
	opts   device.TieredOptions
	parts  []part
	faulty []*device.Faulty // by part
	faults []device.FaultyOptions
	d      *device.Tiered
	p      *devicetest.Pump
}

func newTieredModel(t *testing.T, seed uint64) *tieredModel {
	m := &tieredModel{t: t, r: rand.New(rand.NewPCG(seed, 77)), pending: make(map[int]bool)}
	m.bytes = make([]byte, 100*modelPage)
	for i := range m.bytes {
		m.bytes[i] = byte(m.r.Uint32())
	}
	m.opts = device.TieredOptions{RetryAfter: 1, Logger: slog.New(slog.DiscardHandler)}
	if m.r.IntN(2) == 0 {
		m.opts.BacklogPolicy = device.BacklogDrop
	}
	if m.r.IntN(2) == 0 {
		m.opts.Backlog = int64(m.r.IntN(10 * modelPage))
	}
	return m
}

// memories replaces the parts by memory devices.
func (m *tieredModel) memories() {
	tiers := 1 + m.r.IntN(3)
	for i := range tiers {
		opts := device.MemoryOptions{}
		if i < tiers-1 {
			opts.Volatile = m.r.IntN(2) == 0
			opts.Capacity = int64(m.r.IntN(len(m.bytes)))
		}
		memory := device.NewMemoryWith(opts)
		m.parts = append(m.parts, part{"memory", func() (device.Device, error) { return memory.Reopen(), nil }})
	}
	m.commit = m.r.IntN(tiers + 1)
}

// open creates a new stack over the contents of the parts.
func (m *tieredModel) open() {
	var tiers []device.Device
	m.faulty, m.faults = nil, nil
	for i, part := range m.parts {
		opts := device.FaultyOptions{Seed: m.r.Uint64(), Delay: m.r.Float64(), Stuck: 0.05 * m.r.Float64()}
		if i < len(m.parts)-1 {
			opts.ReadError = m.r.Float64() * m.r.Float64()
			opts.WriteError = 0.3 * m.r.Float64()
			opts.TornWrite = 0.3 * m.r.Float64()
			opts.SyncError = 0
			opts.Down = m.r.IntN(8) == 0
		}
		inner, err := part.open()
		if err != nil {
			m.t.Fatalf("%s: %v", part.kind, err)
		}
		f := device.NewFaulty(inner, opts)
		m.faulty, m.faults = append(m.faulty, f), append(m.faults, opts)
		tiers = append(tiers, f)
	}
	m.opts.CommitPoint = m.commit
	m.d = device.NewTieredWith(m.opts, tiers...)
	if m.next > 0 {
		testrun.Bytes(m.d.ReadMeta(tailMeta)).Want(m.t, m.tail(), "the tail")
	}
	if err := m.d.Start(int64(m.next * modelPage)); err != nil {
		m.t.Fatal(err)
	}
	if m.next == 0 {
		m.commitTail() // ssdtier refuses segments without metadata
	}
	m.p = devicetest.NewPump(m.t, m.d, 1+m.r.IntN(20))
	m.p.Idle = func() {
		for _, f := range m.faulty {
			if m.r.IntN(3) == 0 {
				f.Release()
			}
		}
	}
}

func (m *tieredModel) run() {
	defer testrun.NoLeaks(m.t, goleak.IgnoreCurrent()) // later tests look for leaks, too
	m.open()
	for m.next*modelPage < len(m.bytes) && !m.t.Failed() {
		switch k := m.r.IntN(100); {
		case k < 15:
			m.write()
		case k < 96:
			m.read()
		case k < 97:
			m.begin = min(m.begin+m.r.IntN(3*modelPage), m.released())
			if err := m.d.Truncate(int64(m.begin)); err != nil {
				m.t.Errorf("Truncate: %v", err)
			}
		case k < 98:
			i := m.r.IntN(len(m.faulty))
			if i < len(m.faulty)-1 {
				m.faults[i] = device.FaultyOptions{Down: m.r.IntN(2) == 0, ReadError: m.r.Float64()}
				m.faulty[i].Set(m.faults[i])
			}
		default:
			m.reopen()
		}
	}
	m.close()
}

// released is the end of the range that can be read from the device.
func (m *tieredModel) released() int {
	end := m.next
	for page := range m.pending {
		end = min(end, page)
	}
	return end * modelPage
}

func (m *tieredModel) write() {
	page := m.next
	m.next++
	m.pending[page] = true
	src := device.AlignedBuffer(modelPage, m.d.Alignment())
	copy(src, m.bytes[page*modelPage:])
	m.p.Write(src, int64(page*modelPage), func(error) { delete(m.pending, page) })
}

func (m *tieredModel) read() {
	end := m.released()
	if end <= m.begin {
		return
	}
	addr := m.begin + m.r.IntN(end-m.begin)
	n := 1 + m.r.IntN(min(end-addr, 2*modelPage))
	m.p.Read(make([]byte, n), int64(addr), m.bytes[addr:addr+n])
}

// reopen closes the log properly and opens it again.
func (m *tieredModel) reopen() {
	m.p.Drain()
	m.commitTail()
	m.close()
	m.open()
}

// tailMeta is the metadata that has the tail of the log.
const tailMeta = "tail"

func (m *tieredModel) tail() []byte { return []byte(strconv.Itoa(m.next)) }

func (m *tieredModel) commitTail() {
	if err := device.Commit(m.d, tailMeta, m.tail()); err != nil {
		m.t.Errorf("Commit: %v", err)
	}
}

func (m *tieredModel) close() {
	m.p.Drain()
	for i, f := range m.faulty {
		m.faults[i].Stuck = 0
		f.Set(m.faults[i]) // what is stuck from now on would never end
		f.Release()        // Close also waits for copies that a tier has not written yet
	}
	m.p.Close()
	for i, tier := range m.d.Metrics() {
		if i == len(m.parts)-1 && (!tier.Healthy || tier.WriteErrors+tier.ReadErrors > 0) {
			m.t.Errorf("the last tier is said to be ill: %+v", tier)
		}
	}
	if err := m.d.Close(); err != nil {
		m.t.Errorf("Close: %v", err)
	}
}
