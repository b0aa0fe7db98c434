package restore

import (
	"bytes"
	"context"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
	"github.com/redykv/redykv/kv/internal/manifest/manifesttest"
)

// TestPreview compares a preview with what is written, for a snapshot and an increment of
// it whose beginning lies on the device.
func TestPreview(t *testing.T) {
	disk := device.NewMemory()
	if err := disk.Start(20); err != nil {
		t.Fatal(err)
	}
	var chain []manifest.LogPart
	for i, name := range []string{"base", "top"} {
		w, err := manifest.CreateObject(t.Context(), disk, name, manifest.LogChunk)
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range []int64{20, 50, 80}[i:] {
			if err := w.Add(addr, 1, bytes.Repeat([]byte{byte(i + 1)}, 30-10*i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		chain = append(chain, manifest.LogPart{Object: name, From: 20, To: 110})
	}
	p, err := NewPreview(disk, chain, 20)
	if err != nil {
		t.Fatal(err)
	}
	seen := read(t, p)
	p.CloseSnapshots()
	told := int64(0)
	n, err := Snapshots(disk, chain, 20, func(bytes int64) error { told += bytes; return nil })
	if err != nil || n != 90+40 || told < n {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if written := read(t, disk); !bytes.Equal(seen, written) {
		t.Errorf("the preview shows %v, written is %v", seen, written)
	}
	want := runs(30, 1, 20, 2, 10, 1, 20, 2, 10, 1)
	if !bytes.Equal(seen, want) {
		t.Errorf("the preview shows %v, want %v", seen, want)
	}
}

// runs returns runs of bytes, each a length and a value.
func runs(pairs ...int) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		b = append(b, bytes.Repeat([]byte{byte(pairs[i+1])}, pairs[i])...)
	}
	return b
}

func read(t *testing.T, dev device.Device) []byte {
	t.Helper()
	q, err := dev.NewQueue(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	b := make([]byte, 90)
	if err := device.Finish(context.Background(), q, q.Read(b, 20, 0)); err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzSnapshot restores snapshots that pass the checksums: nothing is written
// outside of what they stand for.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte{8, 3, 1, 2, 3, 40, 1, 7})
	f.Fuzz(func(t *testing.T, in []byte) {
		const from, to = 16, 100
		object, _ := manifesttest.Object(t, uint32(manifest.LogChunk), in)
		if err := object.Start(from); err != nil {
			t.Fatal(err)
		}
		s := manifest.LogPart{Object: "object", From: from, To: to}
		verified := s.Read(object, func(int64, []byte) error { return nil })
		restored, err := Snapshots(object, []manifest.LogPart{s}, from, func(int64) error { return nil })
		if (verified == nil) != (err == nil) || restored > to-from {
			t.Errorf("verified: %v, restored %d bytes: %v", verified, restored, err)
		}
	})
}
