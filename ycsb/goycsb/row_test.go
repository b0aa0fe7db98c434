package goycsb

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// encodeRow returns the row of fields.
func encodeRow(fields map[string][]byte) []byte { return appendRow(nil, sorted(nil, fields)) }

// mergeRow and overwriteRow call a new edit.
func mergeRow(dst, old []byte, fields map[string][]byte) ([]byte, error) {
	return new(edit).merge(dst, old, sorted(nil, fields))
}

func overwriteRow(row []byte, fields map[string][]byte) bool {
	return new(edit).overwrite(row, sorted(nil, fields))
}

func names(fields map[string][]byte) []string { return slices.Sorted(maps.Keys(fields)) }

// decode decodes a row with a new view.
func decode(row []byte, wanted []string) (map[string][]byte, error) {
	v := view{row: row}
	return v.decode(wanted)
}

func equalFields(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

var anyFields = rapid.MapOfN(rapid.StringN(0, 5, -1), rapid.SliceOfN(rapid.Byte(), 0, 20), 0, 12)

func TestRows(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		old, fresh := anyFields.Draw(t, "old"), anyFields.Draw(t, "fresh")
		got, err := decode(encodeRow(old), nil)
		if err != nil || !equalFields(got, old) {
			t.Fatalf("decoded %v, %v; want %v", got, err, old)
		}
		merged, err := mergeRow([]byte("before"), encodeRow(old), fresh)
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(old)
		maps.Copy(want, fresh)
		if !bytes.Equal(merged, append([]byte("before"), encodeRow(want)...)) {
			t.Fatalf("merged %q, want the row of %v", merged, want)
		}
		wanted := names(fresh)
		if len(wanted) == 0 {
			return
		}
		some, err := decode(encodeRow(old), wanted)
		maps.DeleteFunc(old, func(name string, _ []byte) bool { _, ok := fresh[name]; return !ok })
		if err != nil || !equalFields(some, old) {
			t.Fatalf("decoded %v, %v; want %v", some, err, old)
		}
	})
}

// TestViewAgain checks that a view into which different rows are read decodes each as a new
// view does.
func TestViewAgain(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		v := view{row: make([]byte, 0, 1<<12)}
		kinds := rapid.SliceOfN(anyFields, 1, 3).Draw(t, "kinds")
		asked := [][]string{nil, names(kinds[0]), {"none"}}
		for range 12 {
			row := encodeRow(rapid.SampledFrom(kinds).Draw(t, "row"))
			if len(row) > 0 {
				// This usually changes a value, sometimes a head or the encoding.
				row[rapid.IntRange(0, len(row)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
			v.row = append(v.row[:0], row...)
			wanted := rapid.SampledFrom(asked).Draw(t, "wanted")
			got, err := v.decode(wanted)
			want, wantErr := decode(row, wanted)
			if (err == nil) != (wantErr == nil) || !equalFields(got, want) {
				t.Fatalf("row %q: %q, %v; alone it is %q, %v", row, got, err, want, wantErr)
			}
		}
	})
}

// TestOverwriteRow checks that overwrite changes a row to the result of merge, or does not
// change it.
func TestOverwriteRow(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		old := anyFields.Draw(t, "old")
		fresh := make(map[string][]byte)
		fits := true
		for name, value := range old {
			switch rapid.IntRange(0, 3).Draw(t, name) {
			case 0:
				fresh[name] = append(bytes.Clone(value), 'x')
				fits = false
			case 1, 2:
				fresh[name] = bytes.Repeat([]byte("y"), len(value))
			}
		}
		if rapid.Bool().Draw(t, "one more") {
			fresh["a new name"] = nil
			fits = false
		}
		row := encodeRow(old)
		want := bytes.Clone(row)
		if fits {
			var err error
			if want, err = mergeRow(nil, row, fresh); err != nil {
				t.Fatal(err)
			}
		}
		if got := overwriteRow(row, fresh); got != fits || !bytes.Equal(row, want) {
			t.Fatalf("%v: %q, want %v: %q", got, row, fits, want)
		}
	})
}

func TestBadRows(t *testing.T) {
	for _, row := range []string{
		"\x05abc",                   // truncated heads
		"\x80",                      // truncated length of the heads
		"\x03\x05ab",                // truncated name
		"\x02\x01a",                 // no length of the value
		"\x03\x01a\x02b",            // truncated value
		"\x03\x01a\x02bcd",          // bytes after the value
		"\x00a",                     // bytes after an empty row
		"\x06\x01a\x02\x01b\x02ccd", // truncated second value
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",       // overlong uvarint
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a",          // length larger than any row
		"\x0c\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01b", // length of a value larger than any row
	} {
		if _, err := decode([]byte(row), nil); !errors.Is(err, errBadRow) {
			t.Errorf("decode(%q): %v", row, err)
		}
		if _, err := mergeRow(nil, []byte(row), nil); !errors.Is(err, errBadRow) {
			t.Errorf("mergeRow(%q): %v", row, err)
		}
		if overwriteRow([]byte(row), fields("z", "")) {
			t.Errorf("overwriteRow(%q)", row)
		}
		// A used edit returns an error too, and can be used again.
		good := encodeRow(fields("a", "1", "b", "2"))
		var e edit
		for range 2 {
			if err := errors.Join(e.shape.learn(good), e.shape.learn(nil)); err != nil || len(e.shape.spots) != 0 {
				t.Errorf("%d fields in no row, %v", len(e.shape.spots), err)
			}
			if merged, err := e.merge(nil, good, nil); err != nil || !bytes.Equal(merged, good) {
				t.Errorf("merged %q, %v", merged, err)
			}
			if err := e.shape.learn([]byte(row)); !errors.Is(err, errBadRow) {
				t.Errorf("learn(%q) again: %v", row, err)
			}
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encodeRow(map[string][]byte{"field0": []byte("value"), "field1": nil}))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Add([]byte("\x03\x01a\x02b"))
	f.Fuzz(func(t *testing.T, row []byte) {
		fields, err := decode(row, nil)
		if err != nil {
			return
		}
		again, err := decode(encodeRow(fields), nil)
		if err != nil || !equalFields(fields, again) {
			t.Fatalf("%v became %v, %v", fields, again, err)
		}
		if _, err := mergeRow(nil, row, fields); err != nil {
			t.Fatal(err)
		}
	})
}
