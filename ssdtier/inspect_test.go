package ssdtier

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inspect inspects a directory and checks that this changed nothing.
func inspect(t *testing.T, dir string) *Report {
	t.Helper()
	names := func() (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e.Name()+info.ModTime().String())
		}
		return all
	}
	before := names()
	r, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	if after := names(); !slices.Equal(before, after) {
		t.Errorf("Inspect changed something: %q, %q", before, after)
	}
	return r
}

// findings returns the lines of a list.
func findings(list []Finding) []string {
	var lines []string
	for _, f := range list {
		lines = append(lines, f.String())
	}
	return lines
}

func wantFindings(t *testing.T, what string, got []Finding, want ...string) {
	t.Helper()
	lines := findings(got)
	ok := len(lines) == len(want)
	for i := 0; ok && i < len(lines); i++ {
		ok = strings.Contains(lines[i], want[i])
	}
	if !ok {
		t.Errorf("%s:\n  %s\nwant\n  %s", what, strings.Join(lines, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestInspect(t *testing.T) {
	d, content := sickDirectory(t)
	r := inspect(t, d.Dir())
	wantFindings(t, "problems", r.Problems)
	wantFindings(t, "notes", r.Notes)
	var verified int64
	for _, s := range r.Segments {
		verified += s.Verified
		if s.Damaged+s.Unsynced+s.Unverified != 0 {
			t.Errorf("%+v", s)
		}
	}
	if !r.OK() || r.InUse || r.Version != formatVersion || r.SegmentSize != minSegmentSize || r.Begin != 100 ||
		len(r.Segments) != 4 || verified != int64(len(content))/sumUnit ||
		!slices.Equal(r.Objects, []FileReport{{"o", int64(len(content))}}) ||
		!slices.Equal(r.Metadata, []FileReport{{"m", 4}}) {
		t.Errorf("%+v", r)
	}
	text := r.String()
	for _, want := range []string{d.Dir(), "begins at 100", segmentName(3), "no problems"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the report:\n%s", want, text)
		}
	}

	open := mustOpen(t, d.Dir(), Options{})
	if r := inspect(t, d.Dir()); !r.InUse || !r.OK() || !strings.Contains(r.String(), "in use") {
		t.Errorf("while the directory is open:\n%s", r)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(filepath.Join(d.Dir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no directory: %v", err)
	}
}

// TestInspectUnsynced: the state after a crash is not a problem.
func TestInspectUnsynced(t *testing.T) {
	d := started(t, Options{SegmentSize: minSegmentSize, Preallocate: -1})
	content := bytes.Repeat([]byte("content!"), 4*sumUnit/8)
	const tail = sumUnit + 1000
	short := append(bytes.Clone(content[:tail]), make([]byte, 2*sumUnit-tail)...)
	if err := errors.Join(writeBlocks(t, d, short, 0), d.Sync(), writeBlocks(t, d, content[sumUnit:], sumUnit)); err != nil {
		t.Fatal(err)
	}
	r := inspect(t, d.Dir())
	wantFindings(t, "problems", r.Problems)
	wantFindings(t, "notes", r.Notes, segmentName(0)+": 4096 bytes at offset 4096: written again after the last Sync")
	if s := r.Segments[0]; s.Verified != 1 || s.Rewritten != 1 || s.Unsynced != 2 {
		t.Errorf("%+v", s)
	}
	alter(t, d.path(segmentName(0)), tail-1)
	r = inspect(t, d.Dir())
	wantFindings(t, "problems", r.Problems, segmentName(0)+": 4096 bytes at offset 4096: does not match")
}

// TestInspectDamage: every kind of damage is found, with file and position.
func TestInspectDamage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(d *Device) error
		want   []string
	}{
		{"format", func(d *Device) error { return os.Truncate(d.path(formatName), 5) },
			[]string{"FORMAT: "}},
		{"no format", func(d *Device) error { return os.Remove(d.path(formatName)) }, []string{"FORMAT: "}},
		{"begin", func(d *Device) error { return os.Truncate(d.path(beginName), 5) }, []string{"BEGIN: "}},
		{"metadata", func(d *Device) error { return os.Truncate(d.path("meta.m"), 2) }, []string{"meta.m: "}},
		{"object's end", func(d *Device) error { return os.Truncate(d.path("object.o"), 10_000) }, []string{"object.o: "}},
		{"object", func(d *Device) error {
			alter(t, d.path("object.o"), 5000)
			alter(t, d.path("object.o"), 9000)
			return nil
		},
			[]string{"object.o: 8192 bytes at offset 4096: does not match"}},
		{"blocks", func(d *Device) error {
			alter(t, d.path(segmentName(1)), 5000)
			alter(t, d.path(segmentName(1)), 9000)
			alter(t, d.path(segmentName(2)), 9000)
			return nil
		}, []string{
			segmentName(1) + ": 8192 bytes at offset 4096: does not match",
			segmentName(2) + ": 4096 bytes at offset 8192: does not match",
		}},
		{"last block of a segment", func(d *Device) error { alter(t, d.path(segmentName(1)), minSegmentSize-1); return nil },
			[]string{segmentName(1) + ": 4096 bytes at offset 61440: does not match"}},
		{"short", func(d *Device) error { return os.Truncate(d.path(segmentName(1)), 50_000) },
			[]string{segmentName(1) + ": 16384 bytes at offset 49152: missing: the file is cut short"}},
		{"last short", func(d *Device) error { return os.Truncate(d.path(segmentName(3)), 4096) },
			[]string{segmentName(3) + ": 28672 bytes at offset 4096: missing: the file is cut short"}},
		{"long", func(d *Device) error { return os.Truncate(d.path(segmentName(1)), 100_000) },
			[]string{segmentName(1) + ": has 100000 bytes"}},
		{"missing", func(d *Device) error { return os.Remove(d.path(segmentName(1))) },
			[]string{segmentName(1) + ": is missing, but its checksums exist: restore it"}},
		{"missing with sums", func(d *Device) error {
			return errors.Join(os.Remove(d.path(segmentName(1))), os.Remove(d.path(sumName(1))))
		}, []string{segmentName(1) + ": is missing, with its checksums: restore it"}},
		{"two missing", func(d *Device) error {
			return errors.Join(os.Remove(d.path(segmentName(1))), os.Remove(d.path(sumName(1))),
				os.Remove(d.path(segmentName(2))), os.Remove(d.path(sumName(2))))
		}, []string{segmentName(1) + ": is missing, and all up to " + segmentName(2)}},
		{"sums", func(d *Device) error { return os.Remove(d.path(sumName(1))) }, []string{sumName(1) + ": is missing: restore it"}},
		{"garbage sums", func(d *Device) error { return os.WriteFile(d.path(sumName(1)), []byte("garbage"), 0o666) },
			[]string{sumName(1) + ": it does not begin with the header of a file of checksums: restore it"}},
		{"exchanged", func(d *Device) error { return exchange(d, 1, 2) },
			[]string{sumName(1) + ": it belongs to " + segmentName(2), sumName(2) + ": it belongs to " + segmentName(1)}},
		{"a sum", func(d *Device) error {
			f, err := os.OpenFile(d.path(sumName(1)), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 16), sumPageSize)
			return errors.Join(err, f.Close())
		}, []string{segmentName(1) + ": 8192 bytes at offset 0: no checksum, but later blocks have one"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, _ := sickDirectory(t)
			if err := tc.damage(d); err != nil {
				t.Fatal(err)
			}
			r := inspect(t, d.Dir())
			wantFindings(t, "problems", r.Problems, tc.want...)
			if r.OK() || !strings.Contains(r.String(), "problems\n  "+r.Problems[0].String()) {
				t.Errorf("the report does not say so:\n%s", r)
			}
		})
	}
}

func TestInspectNotes(t *testing.T) {
	d, _ := sickDirectory(t)
	for name, data := range map[string]string{"meta.x.tmp": "", "README": "mine"} {
		if err := os.WriteFile(d.path(name), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r := inspect(t, d.Dir())
	wantFindings(t, "problems", r.Problems)
	wantFindings(t, "notes", r.Notes, "README: is not a file of a store", "meta.x.tmp: is unfinished")
}

// TestInspectNewSegment: an interrupted creation of a segment may leave a file of checksums
// without entries (a killed process), a file of zeros or an empty file (a power cut), or an
// empty segment (a full disk). Only the newest segment may look so; an older one has lost its
// data.
func TestInspectNewSegment(t *testing.T) {
	d, _ := sickDirectory(t)
	old := make([]byte, sumPageSize) // written by an earlier version, which does not name the segment
	copy(old, sumLine)
	for _, tc := range []struct {
		file    string
		data    []byte
		problem []string
		note    []string
	}{
		{sumName(4) + tempSuffix, sumHeader(4), nil, []string{"is unfinished"}},
		{sumName(4), sumHeader(4), nil, []string{segmentName(4) + ": is new", "is unfinished"}},
		{sumName(4), old, nil, []string{segmentName(4) + ": is new", "is unfinished"}},
		{sumName(4), nil, nil, []string{segmentName(4) + ": is new", "is unfinished"}},
		{sumName(4), make([]byte, 2*sumPageSize), nil, []string{segmentName(4) + ": is new", "is unfinished"}},
		{segmentName(4), make([]byte, sumUnit), nil, []string{sumName(4) + ": is new", "is unfinished"}},
		{sumName(4), sumHeader(4), nil, []string{"is unfinished"}},
		{segmentName(4), nil, nil, []string{"is unfinished"}},
		{segmentName(6), nil, []string{segmentName(5) + ": is missing"}, []string{"is unfinished", segmentName(6) + ": is new"}},
		{sumName(7), append(sumHeader(7), 1), []string{segmentName(5) + ": is missing", segmentName(7) + ": is missing"}, []string{"is unfinished", segmentName(6) + ": is new"}},
	} {
		if err := os.WriteFile(d.path(tc.file), tc.data, 0o666); err != nil {
			t.Fatal(err)
		}
		r := inspect(t, d.Dir())
		wantFindings(t, "problems", r.Problems, tc.problem...)
		wantFindings(t, "notes", r.Notes, tc.note...)
	}
}

// TestInspectVersion1: a directory of version 1 has no checksums, which is not a problem.
func TestInspectVersion1(t *testing.T) {
	r := inspect(t, version1(t, make([]byte, 100_000), 0))
	wantFindings(t, "problems", r.Problems)
	if r.Version != 1 || len(r.Segments) != 2 || len(r.Notes) != 2 || !slices.Equal(r.Metadata, []FileReport{{"store", 10}}) {
		t.Errorf("%s", r)
	}
	dir := version1(t, make([]byte, 100_000), 0)
	if err := mustOpen(t, dir, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	r = inspect(t, dir)
	wantFindings(t, "problems", r.Problems)
	if s := r.Segments[0]; s.Unverified != minSegmentSize/sumUnit {
		t.Errorf("%+v", s)
	}
}

// TestInspectNeededTo: blocks without checksums are a problem where the log is needed.
func TestInspectNeededTo(t *testing.T) {
	d, _ := sickDirectory(t)
	f, err := os.OpenFile(d.path(sumName(1)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 16), sumPageSize); errors.Join(err, f.Close()) != nil {
		t.Fatal(err)
	}
	for needed, want := range map[int64]struct{ problems, notes []string }{
		0:       {nil, []string{segmentName(1) + ": 8192 bytes at offset 0: not written"}},
		sumUnit: {[]string{segmentName(1) + ": 4096 bytes at offset 0: no checksum"}, []string{segmentName(1) + ": 4096 bytes at offset 4096: not written"}},
		1 << 40: {[]string{segmentName(1) + ": 8192 bytes at offset 0: no checksum"}, nil},
	} {
		r := inspect(t, d.Dir())
		r.Notes = nil
		r.NeededTo(r.SegmentSize + needed)
		wantFindings(t, "problems", r.Problems, want.problems...)
		wantFindings(t, "notes", r.Notes, want.notes...)
	}
}
