package kv

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

// seal puts a manifest's inside into its envelope, so that the fuzzer gets past
// the checksum.
func seal(inside []byte) []byte {
	b, err := json.Marshal(sealed{manifestFormat, checksum(inside), inside})
	if err != nil {
		return nil // no JSON
	}
	return b
}

func FuzzManifest(f *testing.F) {
	index := &indexCopy{Object: "index-3", Bits: 4, TagShift: 4, Start: 64}
	m := manifest{
		KeySize: 8, ValueSize: 8, PageSize: 512, Sequence: 9, Index: index,
		Commit: state{Sequence: 4, Begin: 64, Tail: 512, Index: index, Sessions: map[string]CommitPoint{"s": {9, []uint64{3}}}},
		Checkpoints: []checkpoint{
			{state: state{Sequence: 5, Begin: 64, Tail: 1024}, Name: "c5", Kind: Snapshot, Snapshot: "snapshot-6", Flushed: 64},
			{state: state{Sequence: 7, Begin: 64, Tail: 1024}, Name: "c7", Kind: Incremental, Snapshot: "snapshot-8", Flushed: 64, Base: 5},
		},
	}
	inside, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(inside)
	f.Add([]byte(`{"page_size":512,"commit":{"begin":64,"tail":64},"checkpoints":[{"kind":"incremental","base":1}]}`))
	f.Fuzz(func(t *testing.T, inside []byte) {
		_, _ = parseManifest(inside) // nor may it panic where there is no envelope
		m, err := parseManifest(seal(inside))
		if err != nil {
			return
		}
		// Everything that a recovery asks of it.
		if m.begin() > m.Commit.Begin || len(m.infos()) != len(m.Checkpoints) {
			t.Errorf("%+v", m)
		}
		m.objects()
		for i := range m.Checkpoints {
			c := &m.Checkpoints[i]
			if chain := m.chain(c); chain[len(chain)-1] != c || m.named(c.Name) != c || m.numbered(c.Sequence) != c {
				t.Errorf("checkpoint %q of %+v", c.Name, m)
			}
			if len(m.snapshots(c)) == 0 || c.Snapshot != "" && c.Flushed > c.Tail {
				t.Errorf("checkpoint %q: %+v", c.Name, c)
			}
		}
		m.keep(1)
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseManifest(again); err != nil {
			t.Errorf("what was read and cut down cannot be read again: %v\n%s", err, again)
		}
	})
}

// chunked makes an object of one chunk for each piece of the input: an address
// and a length of a byte each, and the bytes.
func chunked(t *testing.T, kind uint32, in []byte) (*device.Memory, []byte) {
	disk := device.NewMemory()
	w, err := createChunks(t.Context(), disk, "object", kind)
	if err != nil {
		t.Fatal(err)
	}
	for len(in) > 2 {
		n := min(int(in[1]), len(in)-2)
		if n > 0 {
			w.addr = int64(int8(in[0]))
			w.buffer = append(w.buffer, in[2:2+n]...)
			if err := w.flush(); err != nil {
				t.Fatal(err)
			}
		}
		in = in[2+n:]
	}
	if err := w.commit(); err != nil {
		t.Fatal(err)
	}
	return disk, object(t, disk, "object")
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte{0, 3, 1, 2, 3, 9, 1, 7}, uint16(5))
	f.Fuzz(func(t *testing.T, in []byte, at uint16) {
		_, data := chunked(t, chunkLog, in)
		read := func(data []byte) ([]byte, error) {
			var all []byte
			err := readChunks("object", bytes.NewReader(data), int64(len(data)), chunkLog, func(addr int64, b []byte) error {
				all = binary.LittleEndian.AppendUint64(all, uint64(addr))
				all = append(all, b...)
				return nil
			})
			return all, err
		}
		want, err := read(data)
		if err != nil {
			t.Fatal(err)
		}
		data[int(at)%len(data)] ^= byte(at>>8) | 1
		if got, err := read(data); err == nil {
			t.Errorf("damaged at %d: read %x, written %x", int(at)%len(data), got, want)
		}
		_, _ = read(in)
		if err := readChunks("another", bytes.NewReader(data), int64(len(data)), chunkLog, func(int64, []byte) error { return nil }); err == nil {
			t.Error("read under another name")
		}
	})
}

// FuzzIndexCopy loads tables that pass the checksums: what is loaded can be used.
func FuzzIndexCopy(f *testing.F) {
	bucket := make([]byte, 4+bucketSize)
	bucket[1], bucket[2+7] = bucketSize, 0x40 // used
	f.Add(append(bucket, bucket...))
	f.Fuzz(func(t *testing.T, in []byte) {
		const bits, tail = 1, 1 << 12
		disk, _ := chunked(t, chunkIndex, in)
		st := &Store{dev: disk}
		table, err := loadIndex(st.dev, &indexCopy{Object: "object", Bits: bits, TagShift: bits, Start: hlog.FirstAddress}, tail, nil)
		if err != nil {
			return
		}
		for hash := range uint64(64) {
			_, e := table.find(hash<<10 | hash)
			if e.address() >= tail || e.address()%8 != 0 {
				t.Errorf("entry %#x of hash %d", uint64(e), hash)
			}
			if s, _, err := table.findOrInsert(hash<<10 | hash); err != nil || s.p == nil && !table.crowded() {
				t.Errorf("hash %d: %v", hash, err)
			}
		}
		closeTable(t, table)
	})
}

func closeTable(t *testing.T, table *table) {
	if err := table.free(); err != nil {
		t.Error(err)
	}
}

// FuzzSnapshot restores snapshots that pass the checksums: nothing is written
// outside of what they stand for.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte{8, 3, 1, 2, 3, 40, 1, 7})
	f.Fuzz(func(t *testing.T, in []byte) {
		const from, to = 16, 100
		object, _ := chunked(t, chunkLog, in)
		if err := object.Start(from); err != nil {
			t.Fatal(err)
		}
		s := snapshot{"object", from, to}
		verified := s.verify(object)
		restored, err := restoreSnapshots(object, []snapshot{s}, from)
		if (verified == nil) != (err == nil) || restored > to-from {
			t.Errorf("verified: %v, restored %d bytes: %v", verified, restored, err)
		}
	})
}
