package manifest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest/manifesttest"
)

// sample is a manifest with everything that one can have.
func sample() *Manifest {
	index := &IndexCopy{Object: "index-3", Bits: 4, TagShift: 4, Start: 64}
	return &Manifest{
		KeySize: 8, ValueSize: 8, PageSize: 512, Sequence: 9, Index: index,
		Commit: State{Sequence: 4, Begin: 64, Tail: 512, Index: index, Sessions: map[string]CommitPoint{"s": {9, []uint64{3}}}},
		Checkpoints: []Checkpoint{
			{State: State{Sequence: 5, Begin: 64, Tail: 1024}, Name: "c5", Kind: Snapshot, Snapshot: "snapshot-6", Flushed: 64},
			{State: State{Sequence: 7, Begin: 64, Tail: 1024}, Name: "c7", Kind: Incremental, Snapshot: "snapshot-8", Flushed: 64, Base: 5},
		},
	}
}

// TestEncode has a manifest read back, and not if any byte of it is changed.
func TestEncode(t *testing.T) {
	data, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := Parse(data); err != nil || m.Named("c7").Base != 5 || !slices.Equal(m.Commit.Sessions["s"].Excluding, []uint64{3}) {
		t.Errorf("%+v, %v", m, err)
	}
	for at := range data {
		bad := bytes.Clone(data)
		bad[at] ^= 1
		if m, err := Parse(bad); !errors.Is(err, device.ErrCorrupt) && !errors.Is(err, ErrMismatch) {
			t.Errorf("with another byte %d: %+v, %v", at, m, err)
		}
	}
	disk := device.NewMemory()
	if m, err := Read(disk); m != nil || err != nil {
		t.Errorf("of an empty device: %+v, %v", m, err)
	}
}

// TestKeep drops the checkpoints that the store named, oldest first, and keeps those that
// others are based on.
func TestKeep(t *testing.T) {
	for n, want := range [][]string{{"mine"}, {"c3", "c5", "mine"}, {"c3", "c5", "mine"}, {"c2", "c3", "c5", "mine"}} {
		m := &Manifest{Checkpoints: []Checkpoint{
			{State: State{Sequence: 2}, Name: "c2"},
			{State: State{Sequence: 3}, Name: "c3", Kind: Snapshot},
			{State: State{Sequence: 5}, Name: "c5", Kind: Incremental, Base: 3},
			{State: State{Sequence: 6}, Name: "mine"},
		}}
		m.Keep(n)
		var names []string
		for _, c := range m.Checkpoints {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("keeping %d: %q, want %q", n, names, want)
		}
	}
}

// TestDeviceTail has older states that need more of the device than the chosen one.
func TestDeviceTail(t *testing.T) {
	m := sample()
	for _, tc := range []struct {
		commit, flushed, want int64
	}{{100, 200, 200}, {300, 200, 300}, {9000, 200, 1024}} {
		m.Commit.Tail, m.Checkpoints[1].Flushed = tc.commit, tc.flushed
		if got := m.DeviceTail(&m.Checkpoints[1]); got != tc.want {
			t.Errorf("commit up to %d, snapshot from %d: %d, want %d", tc.commit, tc.flushed, got, tc.want)
		}
	}
}

// seal puts a manifest's inside into its envelope, so that the fuzzer gets past
// the checksum.
func seal(inside []byte) []byte {
	b, err := json.Marshal(envelope{format, checksum(inside), inside})
	if err != nil {
		return nil // no JSON
	}
	return b
}

func FuzzManifest(f *testing.F) {
	inside, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(inside)
	f.Add([]byte(`{"page_size":512,"commit":{"begin":64,"tail":64},"checkpoints":[{"kind":"incremental","base":1}]}`))
	f.Fuzz(func(t *testing.T, inside []byte) {
		_, _ = Parse(inside) // nor may it panic where there is no envelope
		m, err := Parse(seal(inside))
		if err != nil {
			return
		}
		// Everything that a recovery asks of it.
		if m.Begin() > m.Commit.Begin {
			t.Errorf("%+v", m)
		}
		m.Objects()
		for i := range m.Checkpoints {
			c := &m.Checkpoints[i]
			if chain := m.Chain(c); chain[len(chain)-1] != c || m.Named(c.Name) != c || m.Numbered(c.Sequence) != c {
				t.Errorf("checkpoint %q of %+v", c.Name, m)
			}
			if len(m.Snapshots(c)) == 0 || c.Snapshot != "" && c.Flushed > c.Tail {
				t.Errorf("checkpoint %q: %+v", c.Name, c)
			}
			m.Info(c)
		}
		m.Keep(1)
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil {
			t.Errorf("what was read and cut down cannot be read again: %v\n%s", err, again)
		}
	})
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte{0, 3, 1, 2, 3, 9, 1, 7}, uint16(5))
	f.Fuzz(func(t *testing.T, in []byte, at uint16) {
		_, data := manifesttest.Object(t, uint32(LogChunk), in)
		read := func(data []byte) ([]byte, error) {
			var all []byte
			err := readChunks("object", bytes.NewReader(data), int64(len(data)), LogChunk, func(addr int64, b []byte) error {
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
		if err := readChunks("another", bytes.NewReader(data), int64(len(data)), LogChunk, func(int64, []byte) error { return nil }); err == nil {
			t.Error("read under another name")
		}
	})
}

// TestObject writes an object of several chunks and reads it back.
func TestObject(t *testing.T) {
	disk := device.NewMemory()
	w, err := CreateObject(t.Context(), disk, "object", LogChunk)
	if err != nil {
		t.Fatal(err)
	}
	var want []LogPart // pieces: where they begin and end
	add := func(addr int64, n int) {
		if err := w.Add(addr, 1, bytes.Repeat([]byte{byte(addr)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	add(8, 10)
	add(18, 5)
	want = append(want, LogPart{From: 8, To: 23})
	add(40, MaxChunk)
	add(40+MaxChunk, 1)
	want = append(want, LogPart{From: 40, To: 40 + MaxChunk}, LogPart{From: 40 + MaxChunk, To: 41 + MaxChunk})
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	var got []LogPart
	whole := LogPart{"object", 0, 41 + MaxChunk}
	err = whole.Read(disk, func(addr int64, b []byte) error {
		got = append(got, LogPart{From: addr, To: addr + int64(len(b))})
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	whole.To--
	if err := whole.Read(disk, func(int64, []byte) error { return nil }); !errors.Is(err, device.ErrCorrupt) {
		t.Errorf("bytes behind the end: %v", err)
	}
	if o, err := disk.OpenObject("object"); err != nil || o.Size() != w.Bytes() {
		t.Errorf("%v, %v, %d bytes written", o, err, w.Bytes())
	}
	if err := ReadObject(disk, "object", LogChunk, w.Bytes()+1, nil); !errors.Is(err, device.ErrCorrupt) {
		t.Errorf("smaller than wanted: %v", err)
	}
}
