package ssdtier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/redykv/redykv/device"
)

// The names of the files beside the segments.
const (
	formatName = "FORMAT"
	lockName   = "LOCK"
	beginName  = "BEGIN"
	metaPrefix = "meta."
	tempSuffix = ".tmp" // no name of metadata or an object ends so
)

const (
	formatVersion = 1
	formatLine    = "redykv ssdtier %d segment %d\n"
	beginLine     = "begin %d\n"
)

// parseFormat reads the format file; not ok unless it is just what is written.
func parseFormat(text string) (version int, size int64, ok bool) {
	_, err := fmt.Sscanf(text, formatLine, &version, &size)
	return version, size, err == nil && text == fmt.Sprintf(formatLine, version, size)
}

// parseBegin is the same for the file that keeps Begin.
func parseBegin(text string) (begin int64, ok bool) {
	_, err := fmt.Sscanf(text, beginLine, &begin)
	return begin, err == nil && begin >= 0 && text == fmt.Sprintf(beginLine, begin)
}

// lockDir takes the directory for this process until the file is closed, by the
// process's end at the latest.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %s is not writable: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written to it
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return nil, fmt.Errorf("ssdtier: lock %s: %w", dir, err)
	}
	return f, nil
}

// loadFormat checks the directory's format, or gives it one if it is new.
func (d *Device) loadFormat() error {
	path := d.path(formatName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if d.opts.SegmentSize == 0 {
			d.opts.SegmentSize = DefaultSegmentSize
		}
		// The directory itself may be new.
		return errors.Join(
			d.replaceFile(formatName, fmt.Appendf(nil, formatLine, formatVersion, d.opts.SegmentSize)),
			syncDir(filepath.Dir(filepath.Clean(d.dir))))
	}
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	version, size, ok := parseFormat(string(data))
	if !ok {
		return fmt.Errorf("%w: %s holds %q", ErrFormat, path, data)
	}
	if version != formatVersion {
		return fmt.Errorf("%w: %s has version %d, this is %d", ErrFormat, path, version, formatVersion)
	}
	if err := checkSegmentSize(size); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFormat, path, err)
	}
	if d.opts.SegmentSize != 0 && d.opts.SegmentSize != size {
		return fmt.Errorf("%w: %s has segments of %d bytes, not %d", ErrFormat, d.dir, size, d.opts.SegmentSize)
	}
	d.opts.SegmentSize = size
	return nil
}

// loadBegin finds out where the log began when the directory was last open.
func (d *Device) loadBegin() error {
	data, err := os.ReadFile(d.path(beginName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	begin, ok := parseBegin(string(data))
	if !ok {
		return fmt.Errorf("%w: %s holds %q", ErrFormat, d.path(beginName), data)
	}
	d.begin.Store(begin)
	return nil
}

func (d *Device) storeBegin(begin int64) error {
	return d.replaceFile(beginName, fmt.Appendf(nil, beginLine, begin))
}

// WriteMeta implements device.Device.
func (d *Device) WriteMeta(name string, data []byte) error {
	if err := device.CheckName(name); err != nil {
		return fmt.Errorf("ssdtier: metadata: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return device.ErrClosed
	}
	return d.replaceFile(metaPrefix+name, data)
}

// ReadMeta implements device.Device. A directory with segments and no metadata at
// all has lost it, which is an error of its own: who took it for a new log would
// start by dropping the segments.
func (d *Device) ReadMeta(name string) ([]byte, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: metadata: %w", err)
	}
	path := d.path(metaPrefix + name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := d.checkOrphans(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", path, device.ErrNoMeta)
	}
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %w", err)
	}
	return data, nil
}

// checkOrphans refuses segments without any metadata.
func (d *Device) checkOrphans() error {
	metas, err := filepath.Glob(d.path(metaPrefix + "*"))
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	segments, err := filepath.Glob(d.path("*" + segmentSuffix))
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	if len(metas) == 0 && len(segments) > 0 {
		return fmt.Errorf("%w: %s holds %d segments and none of its %s* files: put them back, or choose another directory",
			ErrFormat, d.dir, len(segments), metaPrefix)
	}
	return nil
}

// replaceFile gives a file new contents, durably and atomically. One caller at
// a time for each name.
func (d *Device) replaceFile(name string, data []byte) error {
	path := d.path(name)
	f, err := os.Create(path + tempSuffix)
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(path+tempSuffix, path)
	}
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	return syncDir(d.dir)
}

// syncDir makes the names of the files in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return fmt.Errorf("ssdtier: sync directory: %w", err)
	}
	return nil
}
