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

func equalFields(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

var anyFields = rapid.MapOfN(rapid.StringN(0, 5, -1), rapid.SliceOfN(rapid.Byte(), 0, 20), 0, 12)

func TestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, fresh := anyFields.Draw(t, "old"), anyFields.Draw(t, "fresh")
		got, err := decodeRow(encodeRow(old), nil)
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
		some, err := decodeRow(encodeRow(old), wanted)
		maps.DeleteFunc(old, func(name string, _ []byte) bool { _, ok := fresh[name]; return !ok })
		if err != nil || !equalFields(some, old) {
			t.Fatalf("decoded %v, %v; want %v", some, err, old)
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
		if _, err := decodeRow([]byte(row), nil); !errors.Is(err, errBadRow) {
			t.Errorf("decodeRow(%q): %v", row, err)
		}
		if _, err := mergeRow(nil, []byte(row), nil, nil); !errors.Is(err, errBadRow) {
			t.Errorf("mergeRow(%q): %v", row, err)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encodeRow(map[string][]byte{"field0": []byte("value"), "field1": nil}))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, row []byte) {
		fields, err := decodeRow(row, nil)
		if err != nil {
			return
		}
		again, err := decodeRow(encodeRow(fields), nil)
		if err != nil || !equalFields(fields, again) {
			t.Fatalf("%v became %v, %v", fields, again, err)
		}
		if _, err := mergeRow(nil, row, fields, sortedNames(nil, fields)); err != nil {
			t.Fatal(err)
		}
	})
}
