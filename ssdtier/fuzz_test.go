package ssdtier

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzParse: parsers accept exactly what is written.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"redykv ssdtier 1 segment 65536\n", sealed("redykv ssdtier 3 segment 65536\n"), "redykv ssdtier 4\n",
		"begin 17\n", sealed("begin 00000000000000000017\n"), sealed(""), "000000000001.seg", "000000000001.sum", ".sum", "1.seg.sum",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := string(data)
		for _, version := range []int{1, formatVersion} {
			if begin, ok := parseBegin(version, data); ok && begin < 0 {
				t.Errorf("begin %d", begin)
			}
		}
		if version, size, err := checkFormat("FORMAT", data); err == nil &&
			(version < 1 || version > formatVersion || checkSegmentSize(size) != nil) {
			t.Errorf("version %d, segments of %d bytes", version, size)
		}
		if n, ok := parseSegmentName(text); ok && segmentName(n) != text {
			t.Errorf("%q is segment %d", text, n)
		}
		if n, ok := parseSumName(text); ok && sumName(n) != text {
			t.Errorf("%q has the sums of segment %d", text, n)
		}
		if data, ok := unseal(data); ok && string(seal(data)) != text {
			t.Errorf("%q is not sealed", text)
		}
		if got, ok := unseal(seal(data)); !ok || !bytes.Equal(got, data) {
			t.Errorf("%q, sealed, is %q", text, got)
		}
	})
}

// FuzzSums: a file of checksums never overflows its segment's table, and what was loaded is
// stored unchanged.
func FuzzSums(f *testing.F) {
	header := append([]byte(sumLine), make([]byte, sumPageSize-len(sumLine))...)
	f.Add(header)
	f.Add(append(bytes.Clone(header), "12345678abcdefgh123"...))
	f.Add(append(bytes.Clone(header), make([]byte, 2*sumPageSize)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		table := newSumTable(minSegmentSize)
		if parseSums(data, 0, table) != nil {
			return
		}
		for block := range int64(minSegmentSize / sumUnit) {
			var want uint64
			if at := sumPageSize + 8*int(block); at+8 <= len(data) {
				for i := range 8 {
					want |= uint64(data[at+i]) << (8 * i)
				}
			}
			if got := table.get(block); got != want {
				t.Errorf("block %d has sum %x, want %x", block, got, want)
			}
		}
	})
}

// FuzzDirectory puts any bytes into one file of a directory. Inspect and Open must not panic,
// nor reads of what Open accepts.
func FuzzDirectory(f *testing.F) {
	names := []string{formatName, beginName, segmentName(0), sumName(0), "meta.m", "object.o", lockName}
	for i := range names {
		f.Add(i, []byte("begin 17\n"))
	}
	f.Add(0, []byte("redykv ssdtier 1 segment 65536\n"))
	f.Add(1, seal([]byte("begin 00000000000000000017\n")))
	f.Add(3, append([]byte(sumLine), make([]byte, sumPageSize)...))
	f.Add(3, append(sumHeader(0), make([]byte, sumPageSize)...))
	f.Add(3, append(sumHeader(1), make([]byte, sumPageSize)...))
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		dir := t.TempDir()
		files := map[string][]byte{
			formatName:     seal([]byte("redykv ssdtier 3 segment 65536\n")),
			segmentName(0): make([]byte, 3*sumUnit),
			"meta.m":       seal([]byte("m")),
		}
		files[names[uint(which)%uint(len(names))]] = data
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Inspect(dir); err != nil {
			t.Fatal(err)
		}
		d, err := Open(dir)
		if err != nil {
			return
		}
		if d.Start(2*sumUnit+5) == nil {
			_, _ = readAll(t, d, 0, 2*sumUnit+5) // may fail
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}
