package ssdtier

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/redykv/redykv/device"
)

// Names of the files beside the segments.
const (
	formatName = "FORMAT"
	lockName   = "LOCK"
	beginName  = "BEGIN"
	metaPrefix = "meta."
	// objectPrefix begins the name of an object's file.
	objectPrefix = "object."
	tempSuffix   = ".tmp" // names of metadata and objects never end in it
)

// kind is the purpose of a file of the directory, by its name.
type kind int

const (
	foreign kind = iota // not a file of this package, or LOCK, which is empty
	leftover
	format
	begin
	segmentFile
	sumFile
	metaFile
	objectFile
	companionFile
	journalFile
)

// classify returns the kind of a file, and the number of its segment.
func classify(name string) (what kind, number int64) {
	if number, ok := parseSegmentName(name); ok {
		return segmentFile, number
	}
	if number, ok := parseSumName(name); ok {
		return sumFile, number
	}
	if made, ok := strings.CutSuffix(name, tempSuffix); ok {
		if what, _ := classify(made); what == foreign && name != probeName {
			return foreign, 0
		}
		return leftover, 0
	}
	meta, isMeta := strings.CutPrefix(name, metaPrefix)
	object, isObject := strings.CutPrefix(name, objectPrefix)
	switch {
	case name == formatName:
		return format, 0
	case name == beginName:
		return begin, 0
	case name == journalName:
		return journalFile, 0
	case isMeta && device.CheckName(meta) == nil:
		return metaFile, 0
	case isObject && device.CheckName(object) == nil:
		return objectFile, 0
	case strings.HasPrefix(name, companionPrefix):
		return companionFile, 0
	}
	return foreign, 0
}

// formatVersion is the version that is written. Version 1 had no checksums, version 2 no
// journal: a directory of version 2 gets the new one when its journal is made.
const (
	formatVersion = 3
	formatLine    = "redykv ssdtier %d segment %d\n"
	beginLine     = "begin %020d\n"
	beginLine1    = "begin %d\n" // in version 1
)

// parseFormat reads the format file, of any version with this first line. It is not ok unless
// the rest has the exact form.
func parseFormat(data []byte) (version int, size int64, ok bool) {
	line, _, _ := strings.Cut(string(data), "\n")
	line += "\n"
	_, err := fmt.Sscanf(line, formatLine, &version, &size)
	if err != nil || line != fmt.Sprintf(formatLine, version, size) {
		return 0, 0, false
	}
	text, ok := unsealFor(version, data)
	return version, size, version > formatVersion || ok && string(text) == line
}

// parseBegin reads the file with Begin. It is not ok unless the file has the exact form.
func parseBegin(version int, data []byte) (begin int64, ok bool) {
	text, ok := unsealFor(version, data)
	if !ok {
		return 0, false
	}
	_, err := fmt.Sscanf(string(text), beginLine1, &begin)
	ok = string(text) == fmt.Sprintf(beginLine, begin) || version == 1 && string(text) == fmt.Sprintf(beginLine1, begin)
	return begin, ok && err == nil && begin >= 0
}

// Limits of the files that are read as a whole. A damaged file system may say that one is longer.
const (
	maxLines  = 4 << 10 // FORMAT and BEGIN
	maxSealed = 1 << 30 // metadata and a companion, with their last lines
)

// readStart reads a file, up to a limit of bytes.
func readStart(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(int(min(info.Size(), limit)) + bytes.MinRead)
	_, err = b.ReadFrom(io.LimitReader(f, limit))
	return b.Bytes(), err
}

// wrap adds the package to the error of a system call or a file.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ssdtier: %w", err)
}

// loadFormat checks the directory's format, or writes it if the directory is new, and returns
// the version.
func (d *Device) loadFormat() (int, error) {
	version, size, err := readFormat(d.path(formatName))
	if errors.Is(err, fs.ErrNotExist) {
		if err := d.checkNew(); err != nil {
			return 0, err
		}
		if d.opts.SegmentSize == 0 {
			d.opts.SegmentSize = segmentSizeFor(fileSystemSize(d.dir))
		}
		return formatVersion, errors.Join(d.storeFormat(), d.storeBegin(0))
	}
	if err != nil {
		return 0, err
	}
	if d.opts.SegmentSize != 0 && d.opts.SegmentSize != size {
		return 0, fmt.Errorf("%w: %s has segments of %d bytes, Options.SegmentSize is %d", ErrFormat, d.dir, size, d.opts.SegmentSize)
	}
	d.opts.SegmentSize = size
	return version, nil
}

// checkOwner returns an error if the directory has other programs' files. It does not lock,
// which would leave a file there.
func (d *Device) checkOwner() error {
	if _, err := os.Lstat(d.path(formatName)); !errors.Is(err, fs.ErrNotExist) {
		return nil // a store's directory; other errors follow when it is read
	}
	return d.eachEntry(func(name string, what kind) error {
		if what == foreign && name != lockName && name != "lost+found" {
			return fmt.Errorf("%w: %s holds %s, which is not a file of a store: choose an empty or new directory",
				ErrFormat, d.dir, name)
		}
		return nil
	})
}

// checkNew returns an error if the directory has lost its format file: as a new one it might
// get segments of another size.
func (d *Device) checkNew() error {
	return d.eachEntry(func(name string, what kind) error {
		if what == leftover || what == foreign { // checkOwner has checked these
			return nil
		}
		return fmt.Errorf("%w: %s holds %s but no %s: restore it, or choose another directory",
			ErrFormat, d.dir, name, formatName)
	})
}

// eachEntry calls f for each entry of the directory, until it returns an error.
func (d *Device) eachEntry(f func(name string, what kind) error) error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return wrap(err)
	}
	for _, e := range entries {
		what, _ := classify(e.Name())
		if err := f(e.Name(), what); err != nil {
			return err
		}
	}
	return nil
}

// readFormat reads a format file.
func readFormat(path string) (version int, size int64, err error) {
	data, err := readStart(path, maxLines)
	if err != nil {
		return 0, 0, wrap(err)
	}
	return checkFormat(path, data)
}

// checkFormat returns what is wrong with a format file.
func checkFormat(path string, data []byte) (version int, size int64, err error) {
	version, size, ok := parseFormat(data)
	if !ok {
		return 0, 0, fmt.Errorf("%w: %s holds %q: restore it, or choose another directory", ErrFormat, path, shorten(data))
	}
	if version < 1 || version > formatVersion {
		return 0, 0, fmt.Errorf("%w: %s has version %d, this version reads up to %d", ErrFormat, path, version, formatVersion)
	}
	if err := checkSegmentSize(size); err != nil {
		return 0, 0, fmt.Errorf("%w: %s: %w", ErrFormat, path, err)
	}
	return version, size, nil
}

// shorten limits the length of a damaged file's content in an error.
func shorten(data []byte) []byte { return data[:min(len(data), 100)] }

func (d *Device) storeFormat() error {
	return d.replaceFile(formatName, fmt.Appendf(nil, formatLine, formatVersion, d.opts.SegmentSize))
}

// readBegin reads the file with Begin; 0 if there is none.
func readBegin(path string, version int) (int64, error) {
	data, err := readStart(path, maxLines)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, wrap(err)
	}
	begin, ok := parseBegin(version, data)
	if !ok {
		return 0, fmt.Errorf("%w: %s holds %q: restore it", ErrFormat, path, shorten(data))
	}
	return begin, nil
}

// storeBegin stores Begin durably. On a full disk, where truncation is needed to release
// space, the old file is overwritten in place: its length is always the same, and less than
// the unit that a disk writes atomically.
func (d *Device) storeBegin(begin int64) error {
	text := fmt.Appendf(nil, beginLine, begin)
	err := d.replaceFile(beginName, text)
	if !isFull(err) {
		return err
	}
	f, openErr := openFile(d.path(beginName), os.O_WRONLY, 0)
	if openErr != nil {
		return err
	}
	_, err = f.WriteAt(seal(text), 0)
	if err == nil {
		err = f.Sync()
	}
	return wrap(errors.Join(err, f.Close()))
}

// upgrade adds checksums to a directory of version 1: to its small files now, and to blocks
// when they are written. If it is interrupted, the next Open repeats it.
func (d *Device) upgrade() error {
	err := d.eachEntry(func(name string, what kind) error {
		if what != metaFile {
			return nil
		}
		data, err := readStart(d.path(name), maxSealed)
		if err != nil {
			return wrap(err)
		}
		text, _ := unsealFor(1, data)
		return d.replaceFile(name, text)
	})
	if err != nil {
		return err
	}
	for _, s := range d.segments.all() {
		if err := s.adopt(); err != nil {
			return err
		}
	}
	return errors.Join(d.storeBegin(d.begin.Load()), d.syncNames(), d.storeFormat())
}
