package redytier

import (
	"bytes"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// A journal keeps what is written, and knows when that may have been lost.
func TestJournal(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	const size = 1 << 16
	cache := c.create(t, Config{Capacity: 8 * size, RegionSize: size, Configuration: oneSided})
	j := newJournal(cache, true)
	if j.Size() != size || j.at != 7*size || j.Name() != "Redy cache "+cache.ID() {
		t.Errorf("%s of %d bytes at %d", j.Name(), j.Size(), j.at)
	}
	if err := j.Begin(); err != nil {
		t.Fatal(err)
	}
	record := bytes.Repeat([]byte("record"), 1000)
	for _, at := range []int64{0, 6000, size - 6000} {
		if n, err := j.WriteAt(record, at); n != len(record) || err != nil {
			t.Fatalf("a write at %d: %d, %v", at, n, err)
		}
	}
	all := make([]byte, size)
	if n, err := j.ReadAt(all, 0); n != size || err != nil || !bytes.HasPrefix(all, append(record, record...)) || !bytes.HasSuffix(all, record) {
		t.Fatalf("%d bytes, %v, or other ones", n, err)
	}
	if _, err := j.WriteAt(record, size-5999); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("a write beyond the end: %v", err)
	}
	cache.lose(cache.table.Load().regions.at(7).endpoint.grant, errors.New("gone"))
	if _, err := j.WriteAt(record, 0); err == nil {
		t.Error("a write to lost memory succeeds")
	}
	if err := j.Begin(); err == nil {
		t.Error("lost memory begins to take records")
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.WriteAt(record, 0); !errors.Is(err, device.ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
}

// A journal of a cache that is taken up has what was written; the former client's writes fail.
func TestJournalIsTakenUp(t *testing.T) {
	forManaged(t, func(t *testing.T, m *managed, cfg Config) {
		old, err := m.open(t, m, cfg)
		if err != nil {
			t.Fatal(err)
		}
		record := bytes.Repeat([]byte("record"), 1000)
		before := newJournal(old, true)
		if err := before.Begin(); err != nil {
			t.Fatal(err)
		}
		if _, err := before.WriteAt(record, 100); err != nil {
			t.Fatal(err)
		}
		cache, err := m.attach(t, m, cfg, old.Identity())
		if err != nil {
			t.Fatal(err)
		}
		testrun.Until(t, "the former client's writes fail", func() bool {
			_, err := before.WriteAt([]byte("other"), 100)
			return err != nil
		})
		now := newJournal(cache, true)
		got := make([]byte, len(record))
		_, err = now.ReadAt(got, 100)
		testrun.Bytes(got, err).Want(t, record, "the record of before")
		if err := errors.Join(now.Begin(), now.close(), before.close()); err != nil {
			t.Error(err)
		}
	})
}
