package ssdtier

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

// The small files end with a line that has the checksum of everything before it.
const (
	sealLine   = "\nxxh64 %016x\n"
	sealLength = len("\nxxh64 0123456789abcdef\n")
)

// seal returns data with its last line.
func seal(data []byte) []byte {
	return fmt.Appendf(bytes.Clone(data), sealLine, xxhash.Sum64(data))
}

// unseal returns what was sealed; it is not ok if the checksum does not agree.
func unseal(file []byte) (data []byte, ok bool) {
	if len(file) < sealLength {
		return nil, false
	}
	data = file[:len(file)-sealLength]
	return data, bytes.Equal(file[len(data):], fmt.Appendf(nil, sealLine, xxhash.Sum64(data)))
}

// unsealFor is unseal in a directory of some version: in one without checksums
// a file may be without. A directory whose upgrade was interrupted has some with.
func unsealFor(version int, file []byte) (data []byte, ok bool) {
	data, ok = unseal(file)
	if !ok && version == 1 {
		return file, true
	}
	return data, ok
}

// WriteMeta implements device.Device. It takes up to a GiB.
func (d *Device) WriteMeta(name string, data []byte) error {
	if err := checkMeta(name, data); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	if err := d.lacks(); err != nil {
		return err
	}
	if d.mayAppend() {
		if record := d.encode(name, data, nil); record != nil && d.writeRecord(record, name, data) {
			return nil
		}
	}
	if _, journaled := d.journal.metas[name]; journaled || d.journal.file != nil && len(data) <= journalMetas {
		return d.commitAll(name, data)
	}
	return d.replaceFile(metaPrefix+name, data)
}

// checkMeta returns what is wrong with metadata that is to be stored.
func checkMeta(name string, data []byte) error {
	err := device.CheckName(name)
	if err == nil && len(data)+sealLength > maxSealed {
		err = fmt.Errorf("%s has %d bytes, more than %d", name, len(data), maxSealed-sealLength)
	}
	if err != nil {
		return fmt.Errorf("ssdtier: metadata: %w", err)
	}
	return nil
}

// ReadMeta implements device.Device. A log stores metadata before its first write, see
// [device.Device]: a directory with segments and none at all has lost it, and ReadMeta returns an
// error other than ErrNoMeta. A caller that took it for a new log would drop the segments.
func (d *Device) ReadMeta(name string) ([]byte, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: metadata: %w", err)
	}
	d.mu.Lock() // a commit may move it from its file to the journal
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	if err := d.lacks(); err != nil {
		return nil, err
	}
	if data, journaled := d.journal.metas[name]; journaled {
		return bytes.Clone(data), nil
	}
	data, err := readMeta(d.path(metaPrefix+name), formatVersion)
	if errors.Is(err, device.ErrNoMeta) && len(d.journal.metas) == 0 {
		if err := d.checkOrphans(); err != nil {
			return nil, err
		}
	}
	return data, err
}

// readMeta reads and verifies a file of metadata in a directory of some version.
func readMeta(path string, version int) ([]byte, error) {
	file, err := readStart(path, maxSealed)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", path, device.ErrNoMeta)
	case err != nil:
		return nil, wrap(err)
	}
	data, ok := unsealFor(version, file)
	if !ok {
		return nil, fmt.Errorf("%w: %s does not match its checksum, restore it: %w",
			ErrFormat, path, device.ErrCorrupt)
	}
	return data, nil
}

// checkOrphans returns an error if there are segments and no metadata.
func (d *Device) checkOrphans() error {
	count := map[kind]int{}
	err := d.eachEntry(func(_ string, what kind) error {
		count[what]++
		return nil
	})
	if n := count[segmentFile]; err == nil && n > 0 && count[metaFile] == 0 {
		err = fmt.Errorf("%w: %s holds %d segments but no %s* files: restore them, or choose another directory",
			ErrFormat, d.dir, n, metaPrefix)
	}
	return err
}

// replaceFile replaces the content of a file, sealed, durably and atomically. There is one
// caller at a time for each name.
func (d *Device) replaceFile(name string, data []byte) error {
	path := d.path(name)
	if err := d.withSpace(func() error { return writeAndRename(path, seal(data), 0o666, true) }); err != nil {
		return wrap(err)
	}
	return d.syncNames()
}

// writeAndRename writes a file under a temporary name, syncs it if sync is true, and renames it.
func writeAndRename(path string, file []byte, perm fs.FileMode, sync bool) error {
	f, err := openFile(path+tempSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(file)
	if err == nil && sync {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(path+tempSuffix, path)
	}
	if err != nil {
		_ = os.Remove(path + tempSuffix) // to release its space
	}
	return err
}

// syncNames makes the names of the files in the directory durable. It opens no file, so that a
// lack of descriptors does not look like a directory that cannot be synced. The system reports an
// error once: every later Sync has it, too, unless there was no space. The caller holds mu, or opens
// the directory.
func (d *Device) syncNames() error {
	err := d.lock.dir.Sync()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("ssdtier: sync directory: %w", err)
	if !isFull(err) {
		d.syncErr = cmp.Or(d.syncErr, err)
	}
	return err
}
