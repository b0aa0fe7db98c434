package ssdtier

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redykv/redykv/device"
)

// ErrNoStore means that a directory has no file of a store.
var ErrNoStore = errors.New("the directory has no file of a store")

// Inspect checks a directory without opening any file for writing: it reads every file,
// verifies its checksums, and reports the contents and the damage. During the inspection the
// directory cannot be opened; if it is open already, the report says so. Inspect fails only if
// the directory cannot be read or, with ErrNoStore, has no file of a store.
func Inspect(dir string) (*Report, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, wrap(err)
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { what, _ := classify(e.Name()); return what != foreign }) {
		return nil, fmt.Errorf("ssdtier: %s: %w", dir, ErrNoStore)
	}
	in := &inspector{
		Report:  Report{Dir: dir},
		sums:    make(map[int64]bool),
		present: make(map[int64]bool),
		buf:     make([]byte, inspectChunk),
	}
	unlock := in.lock()
	defer unlock()
	in.formatAndBegin()
	var broken error
	if in.journal, broken = readJournal(in.path(journalName)); broken != nil {
		in.problem(journalName, "%v", broken)
	}
	for _, e := range entries {
		if what, number := classify(e.Name()); what == segmentFile {
			in.present[number] = true
		} else if what == sumFile {
			in.sums[number] = true
		}
	}
	for _, e := range entries {
		in.file(e.Name())
	}
	in.journaled()
	in.tail()
	return &in.Report, nil
}

// inspectChunk is the number of bytes that are read at once, whole blocks.
const inspectChunk = 1 << 20

type inspector struct {
	Report
	version       int            // of the files
	journal       *journalState  // nil if there is none
	sums, present map[int64]bool // segments with a file of sums; with a file
	buf           []byte

	// suspect is the newest block with a checksum, if it does not agree but has grown. It
	// is a problem if another block with a checksum follows.
	suspect *Finding
}

func (in *inspector) path(name string) string { return filepath.Join(in.Dir, name) }

func (in *inspector) problem(file, what string, args ...any) {
	in.Problems = append(in.Problems, Finding{File: file, Offset: -1, What: fmt.Sprintf(what, args...)})
}

func (in *inspector) note(file, what string, args ...any) {
	in.Notes = append(in.Notes, Finding{File: file, Offset: -1, What: fmt.Sprintf(what, args...)})
}

// lock keeps the directory from being opened, unless it is open already.
func (in *inspector) lock() (unlock func()) {
	l, err := lockForReading(in.Dir)
	if err != nil {
		if in.InUse = errors.Is(err, ErrLocked); !in.InUse {
			in.problem(lockName, "%v", err)
		}
		return func() {}
	}
	return func() { _ = l.close() } // nothing was written
}

func (in *inspector) formatAndBegin() {
	var err error
	if in.Version, in.SegmentSize, err = readFormat(in.path(formatName)); err != nil {
		in.problem(formatName, "%v", err)
	}
	in.version = cmp.Or(in.Version, formatVersion)
	if in.Begin, err = readBegin(in.path(beginName), in.version); err != nil {
		in.problem(beginName, "%v", err)
	}
}

// file inspects one file.
func (in *inspector) file(name string) {
	switch what, number := classify(name); what {
	case segmentFile:
		in.segment(name, number)
	case sumFile:
		if !in.present[number] && !in.below(number) {
			in.onlySums(number)
		}
	case metaFile:
		in.meta(name)
	case objectFile:
		in.object(name)
	case leftover:
		in.note(name, "is unfinished, or kept for a new segment; opening the directory removes it")
	case foreign:
		if name != lockName {
			in.note(name, "is not a file of a store")
		}
	}
}

// below reports whether Begin has passed a segment.
func (in *inspector) below(number int64) bool {
	return in.SegmentSize > 0 && number < in.Begin/in.SegmentSize
}

// journaled reports the journal, and the metadata that it has in place of the files.
func (in *inspector) journaled() {
	if in.journal == nil {
		return
	}
	in.note(journalName, "has %d records of what may not be in other files yet; opening the directory writes it there", in.journal.records)
	if in.Away = in.journal.away; in.journal.isAway {
		in.note(journalName, "later commits, of about a second, are in memory %q outside the directory", in.journal.away)
	}
	for _, name := range slices.Sorted(maps.Keys(in.journal.metas)) {
		in.Metadata = append(in.Metadata, FileReport{Name: name, Size: int64(len(in.journal.metas[name]))})
	}
	slices.SortFunc(in.Metadata, func(a, b FileReport) int { return cmp.Compare(a.Name, b.Name) })
}

func (in *inspector) meta(name string) {
	if in.journal != nil && in.journal.metas[strings.TrimPrefix(name, metaPrefix)] != nil {
		return // an older one
	}
	report := FileReport{Name: strings.TrimPrefix(name, metaPrefix), Size: -1}
	data, err := readMeta(in.path(name), in.version)
	switch {
	case err == nil:
		report.Size = int64(len(data))
	case errors.Is(err, device.ErrNoMeta):
		return // removed meanwhile
	default:
		in.problem(name, "%v", err)
	}
	in.Metadata = append(in.Metadata, report)
}

func (in *inspector) object(name string) {
	report := FileReport{Name: strings.TrimPrefix(name, objectPrefix), Size: -1}
	o, err := openObject(in.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // removed meanwhile
	case err != nil:
		in.problem(name, "%v", err)
	default:
		report.Size = o.size
		in.objectBlocks(name, o)
		_ = o.Close() // it was only read
	}
	in.Objects = append(in.Objects, report)
}

// objectBlocks reads an object in chunks, and block by block if a chunk fails.
func (in *inspector) objectBlocks(name string, o *object) {
	bad := damage{name: name}
	for off := int64(0); off < o.size; off += inspectChunk {
		chunk := in.buf[:min(inspectChunk, o.size-off)]
		if o.readBlocks(chunk, off) == nil {
			continue
		}
		for at := off; at < off+int64(len(chunk)); at += sumUnit {
			n := min(sumUnit, o.size-at)
			if err := o.readBlocks(chunk[:n], at); errors.Is(err, device.ErrCorrupt) {
				bad.add(at, n, notTheSum)
			} else if err != nil {
				bad.add(at, n, err.Error())
			}
		}
	}
	in.Problems = append(in.Problems, bad.findings...)
}

// damage joins adjacent findings of one kind.
type damage struct {
	name     string
	findings []Finding
}

func (d *damage) add(off, n int64, what string) {
	if k := len(d.findings); k > 0 {
		if last := &d.findings[k-1]; last.Offset+last.Length == off && last.What == what {
			last.Length += n
			return
		}
	}
	d.findings = append(d.findings, Finding{File: d.name, Offset: off, Length: n, What: what})
}

// tail reports the newest block, which after a crash may be later than the synced version.
func (in *inspector) tail() {
	if in.suspect != nil {
		in.suspect.What = "written again after the last Sync, as a crash leaves a log's last block"
		in.Notes = append(in.Notes, *in.suspect)
	}
}

// readFull is ReadAt for which the end of the file is not an error.
func readFull(f *os.File, p []byte, off int64) (int, error) {
	n, err := f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
