package goycsb

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// encodeRow is a row of fields.
func encodeRow(fields map[string][]byte) []byte {
	var row []byte
	for _, name := range sortedNames(nil, fields) {
		row = appendField(row, name, fields[name])
	}
	return row
}

// decode is the fields of a row, by a view of its own.
func decode(row []byte, wanted []string) (map[string][]byte, error) {
	v := view{row: row}
	return v.decode(wanted)
}

func equalFields(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

var anyFields = rapid.MapOfN(rapid.StringN(0, 5, -1), rapid.SliceOfN(rapid.Byte(), 0, 20), 0, 12)

func TestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, fresh := anyFields.Draw(t, "old"), anyFields.Draw(t, "fresh")
		got, err := decode(encodeRow(old), nil)
		if err != nil || !equalFields(got, old) {
			t.Fatalf("decoded %v, %v; want %v", got, err, old)
		}
		merged, err := mergeRow([]byte("before"), encodeRow(old), fresh, sortedNames(nil, fresh))
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(old)
		maps.Copy(want, fresh)
		if !bytes.Equal(merged, append([]byte("before"), encodeRow(want)...)) {
			t.Fatalf("merged %q, want the row of %v", merged, want)
		}
		wanted := sortedNames(nil, fresh)
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

// A view that rows of some kinds are read into, one after the other, in the same memory,
// says of each what it would say of that alone.
func TestViewAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := view{row: make([]byte, 0, 1<<12)}
		kinds := rapid.SliceOfN(anyFields, 1, 3).Draw(t, "kinds")
		asked := [][]string{nil, sortedNames(nil, kinds[0]), {"none"}}
		for range 12 {
			row := encodeRow(rapid.SampledFrom(kinds).Draw(t, "row"))
			if len(row) > 0 {
				// Mostly this is another value, now and then another head or no row.
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

// A row is changed in its place to what a merge would make of it, or not at all.
func TestOverwriteRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
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
		names := sortedNames(nil, fresh)
		row := encodeRow(old)
		want := bytes.Clone(row)
		if fits {
			var err error
			if want, err = mergeRow(nil, row, fresh, names); err != nil {
				t.Fatal(err)
			}
		}
		if got := overwriteRow(row, fresh, names); got != fits || !bytes.Equal(row, want) {
			t.Fatalf("%v: %q, want %v: %q", got, row, fits, want)
		}
	})
}

func TestBadRows(t *testing.T) {
	for _, row := range []string{
		"\x05abc",    // the name is cut short
		"\x01a",      // no value
		"\x01a\x02b", // the value is cut short
		"\x80",       // the length is cut short
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // no length
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a",    // longer than anything
	} {
		if _, err := decode([]byte(row), nil); !errors.Is(err, errBadRow) {
			t.Errorf("decode(%q): %v", row, err)
		}
		if _, err := mergeRow(nil, []byte(row), nil, nil); !errors.Is(err, errBadRow) {
			t.Errorf("mergeRow(%q): %v", row, err)
		}
		if overwriteRow([]byte(row), fields("z", ""), []string{"z"}) {
			t.Errorf("overwriteRow(%q)", row)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encodeRow(map[string][]byte{"field0": []byte("value"), "field1": nil}))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, row []byte) {
		fields, err := decode(row, nil)
		if err != nil {
			return
		}
		again, err := decode(encodeRow(fields), nil)
		if err != nil || !equalFields(fields, again) {
			t.Fatalf("%v became %v, %v", fields, again, err)
		}
		if _, err := mergeRow(nil, row, fields, sortedNames(nil, fields)); err != nil {
			t.Fatal(err)
		}
	})
}
