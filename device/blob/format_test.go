package blob

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestPacked reads any part of a blob, and changes any of its bytes.
func TestPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 500 {
		from := r.Int64N(1 << 40)
		content := make([]byte, 1+r.IntN(5*blockSize))
		for i := range content {
			content[i] = byte(r.Uint32())
		}
		end := from + int64(len(content))
		var packed bytes.Buffer
		err := pack(&packed, from, end, func(dst []byte, addr int64) error {
			copy(dst, content[addr-from:])
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		addr := from + r.Int64N(int64(len(content)))
		to := addr + 1 + r.Int64N(end-addr)
		off, n, first := packedRange(from, end, addr, to)
		if off+n > int64(packed.Len()) || off < 0 {
			t.Fatalf("%d bytes at %d of %d", n, off, packed.Len())
		}
		part := packed.Bytes()[off : off+n]
		got := make([]byte, to-addr)
		seen := 0
		err = unpack(part, first, func(block []byte, at int64) {
			for i, b := range block {
				if a := at + int64(i); a >= addr && a < to {
					got[a-addr] = b
					seen++
				}
			}
		})
		if err != nil || seen != len(got) || !bytes.Equal(got, content[addr-from:to-from]) {
			t.Fatalf("%d to %d of %d to %d: %v, %d bytes", addr, to, from, end, err, seen)
		}
		part[r.IntN(len(part))] ^= 1 << r.IntN(8)
		if unpack(part, first, func([]byte, int64) {}) == nil {
			t.Fatal("an altered bit was not found")
		}
	}
}

// FuzzCatalog: any bytes are either a valid catalog or an error.
func FuzzCatalog(f *testing.F) {
	good := &catalog{
		Format: catalogFormat, Store: "s", Writer: "w", Number: 3, SegmentSize: minSegmentSize, Begin: 5,
		Pieces: []piece{{"a", 5, 100, 200}, {"b", minSegmentSize, minSegmentSize + 1, minSegmentSize + 1}},
		Meta:   map[string][]byte{"m": []byte("x")}, Objects: map[string]stored{"o": {"k", 7}},
	}
	data, err := good.encode()
	if err != nil {
		f.Fatal(err)
	}
	if c, err := parseCatalog(data); err != nil || len(c.Pieces) != 2 {
		f.Fatal(c, err)
	}
	f.Add(data)
	for _, bad := range []func(c *catalog){
		func(c *catalog) { c.Format = 9 }, func(c *catalog) { c.Number = 0 }, func(c *catalog) { c.Begin = -1 },
		func(c *catalog) { c.SegmentSize = 3 }, func(c *catalog) { c.Pieces[0].To = 500 },
		func(c *catalog) { c.Pieces[1].From = 50 }, func(c *catalog) { c.Pieces[1].Stored = 1 << 50 },
		func(c *catalog) { c.Objects["../x"] = stored{} }, func(c *catalog) { c.Meta["a/b"] = nil },
	} {
		c := good.clone()
		bad(c)
		data, err := c.encode()
		if err != nil {
			f.Fatal(err)
		}
		if _, err := parseCatalog(data); err == nil {
			f.Fatalf("%+v: no error", c)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCatalog(data)
		if err != nil {
			return
		}
		for _, p := range c.Pieces {
			if got, ok := c.find(p.From); !ok || got != p {
				t.Errorf("%+v is not found", p)
			}
		}
	})
}
