package smb

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/redykv/redykv/device"
)

// Names of the files.
const (
	headName      = "LOG"
	catalogName   = "OBJECTS"
	metaPrefix    = "meta."
	objectPrefix  = "object."
	segmentSuffix = ".seg"
	tempSuffix    = ".tmp" // names of metadata and objects never end in it
	digits        = 12     // of a segment's or an object's number
)

func segmentName(number int64) string { return fmt.Sprintf("%0*d%s", digits, number, segmentSuffix) }
func objectName(number int64) string  { return fmt.Sprintf("%s%0*d", objectPrefix, digits, number) }

// parseNumber returns the number in a name that make makes.
func parseNumber(name, text string, make func(int64) string) (int64, bool) {
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil && number >= 0 && name == make(number)
}

func parseSegmentName(name string) (int64, bool) {
	return parseNumber(name, strings.TrimSuffix(name, segmentSuffix), segmentName)
}

func parseObjectName(name string) (int64, bool) {
	return parseNumber(name, strings.TrimPrefix(name, objectPrefix), objectName)
}

// isLeftover reports whether a file is unfinished, left by a Device that did not complete it.
func isLeftover(name string) bool {
	made, ok := strings.CutSuffix(name, tempSuffix)
	if !ok {
		return false
	}
	i := strings.LastIndexByte(made, '.') // before the number
	return i > 0 && (made[:i] == headName || made[:i] == catalogName || strings.HasPrefix(made, metaPrefix))
}

// headLine is the format of the file LOG.
const (
	formatVersion = 1
	headLine      = "redykv smb %d segment %d begin %d\n"
)

// parseHead reads the file LOG. It is not ok unless it has exactly the form of headLine.
func parseHead(data []byte) (version int, segment, begin int64, ok bool) {
	_, err := fmt.Sscanf(string(data), headLine, &version, &segment, &begin)
	ok = err == nil && begin >= 0 && string(data) == fmt.Sprintf(headLine, version, segment, begin)
	return version, segment, begin, ok
}

// storeHead stores Begin. The caller holds change.
func (d *Device) storeHead(begin int64) error {
	return d.replaceFile(headName, fmt.Appendf(nil, headLine, formatVersion, d.opts.SegmentSize, begin))
}

// load reads the directory, and removes unfinished and truncated files.
func (d *Device) load() error {
	var names []string
	err := d.ask(false, func(l *link) (err error) {
		names, err = l.list(d)
		return err
	})
	if err != nil {
		return d.named("list", err)
	}
	if err := d.loadHead(names); err != nil {
		return err
	}
	if err := d.loadCatalog(); err != nil {
		return err
	}
	segments := make(map[int64]*file)
	for _, name := range names {
		f := &file{name: name}
		f.made.Store(true)
		number, isSegment := parseSegmentName(name)
		object, isObject := parseObjectName(name)
		switch {
		case isSegment && number >= d.begin.Load()/d.opts.SegmentSize:
			segments[number] = f
		case isSegment, isLeftover(name), isObject && !d.objects.has(object):
			d.trash = append(d.trash, f)
		}
		if isObject {
			d.objects.next = max(d.objects.next, object+1)
		}
	}
	d.segments.Store(&segments)
	return d.sweep()
}

// loadHead reads the file LOG, or creates it if there is no log yet.
func (d *Device) loadHead(names []string) error {
	data, err := d.readFile(headName)
	if errors.Is(err, os.ErrNotExist) {
		for _, name := range names {
			if _, ok := parseSegmentName(name); ok || strings.HasPrefix(name, metaPrefix) {
				return fmt.Errorf("%w: %s has %s but no file %s: restore that file, or choose another directory",
					ErrFormat, d.opts.place(), name, headName)
			}
		}
		if d.opts.SegmentSize == 0 {
			d.opts.SegmentSize = DefaultSegmentSize
		}
		return d.storeHead(0)
	}
	if err != nil {
		return err
	}
	version, segment, begin, ok := parseHead(data)
	switch {
	case !ok:
		return fmt.Errorf("%w: %s: file %s is damaged, restore it: %w", ErrFormat, d.opts.place(), headName, device.ErrCorrupt)
	case version != formatVersion || checkSegmentSize(segment) != nil:
		return fmt.Errorf("%w: %s: version %d with segments of %d bytes, this version reads version %d",
			ErrFormat, d.opts.place(), version, segment, formatVersion)
	case d.opts.SegmentSize != 0 && d.opts.SegmentSize != segment:
		return fmt.Errorf("%w: %s: its segments have %d bytes, Options.SegmentSize is %d",
			ErrFormat, d.opts.place(), segment, d.opts.SegmentSize)
	}
	d.opts.SegmentSize = segment
	d.begin.Store(begin)
	return nil
}

// list returns the names of the files in the directory.
func (l *link) list(d *Device) ([]string, error) {
	infos, err := l.share.ReadDir(d.opts.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, info := range infos {
		if !info.IsDir() {
			names = append(names, info.Name())
		}
	}
	return names, nil
}

// readFile returns the content of a small file.
func (d *Device) readFile(name string) (data []byte, err error) {
	err = d.ask(false, func(l *link) (err error) {
		data, err = l.share.ReadFile(d.path(name))
		return err
	})
	return data, d.named("read of "+name, err)
}

// replaceFile gives a file new contents, durably and atomically. The caller holds
// change.
func (d *Device) replaceFile(name string, data []byte) error {
	d.temps++
	temp := fmt.Sprintf("%s.%d%s", name, d.temps, tempSuffix)
	err := d.ask(true, func(l *link) error {
		err := l.writeFile(d.path(temp), data)
		if err == nil {
			err = l.share.Rename(d.path(temp), d.path(name))
		}
		if err != nil {
			_ = l.share.Remove(d.path(temp)) // else the next Open does
		}
		return err
	})
	if err != nil {
		return marked(d.named("write of "+name, err))
	}
	return d.syncDir()
}

// writeFile creates a file durably.
func (l *link) writeFile(path string, data []byte) error {
	f, err := l.share.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names of the files durable, if the server supports that. The caller holds
// change.
func (d *Device) syncDir() error {
	if d.noDirs {
		return nil
	}
	err := d.ask(true, func(l *link) error {
		return l.flushDir(d.opts.Dir)
	})
	if refused(err) {
		d.noDirs = true
		d.opts.Logger.Info("the file server cannot flush directories: whether new names are durable depends on it",
			"place", d.opts.place(), "err", err)
		return nil
	}
	return d.named("flush of the directory", err)
}

// flushDir makes the names in a directory durable.
func (l *link) flushDir(path string) error {
	dir, err := l.share.OpenFile(path, os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// makeDir creates a directory of the share and those above it, and makes their names durable,
// if the server supports that.
func (l *link) makeDir(dir string) error {
	if err := l.share.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for dir != "" {
		if dir = path.Dir(dir); dir == "." {
			dir = "" // the share
		}
		if err := l.flushDir(dir); err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// WriteMeta implements device.Device.
func (d *Device) WriteMeta(name string, data []byte) error {
	if err := checkName("metadata", name); err != nil {
		return err
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	return d.replaceFile(metaPrefix+name, data)
}

// ReadMeta implements device.Device.
func (d *Device) ReadMeta(name string) ([]byte, error) {
	if err := checkName("metadata", name); err != nil {
		return nil, err
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	data, err := d.readFile(metaPrefix + name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %q: %w", d.opts.place(), name, device.ErrNoMeta)
	}
	return data, err
}
