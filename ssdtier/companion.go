package ssdtier

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/redykv/redykv/device"
)

// companionPrefix begins the name of the companion's file. The name ends with that of the
// opening that has written it, which is random.
const companionPrefix = "companion."

// newCompanion returns the name of the companion's file of one opening of a directory.
func newCompanion() string { return companionPrefix + strings.ToLower(rand.Text()) }

// ReadCompanion returns the companion of the log that an earlier process has written; nil if
// there is none. A companion describes something that is derived from the log, such as a copy
// of its newest part in the memory of other machines. It ends with the next Start, by which
// the log may get another continuation, unless the process that calls it has written it.
func (d *Device) ReadCompanion() ([]byte, error) {
	others, err := d.otherCompanions()
	if err != nil || len(others) != 1 { // more than one: it was being replaced
		return nil, err
	}
	file, err := readStart(others[0], maxSealed)
	if err != nil {
		return nil, wrap(err)
	}
	data, ok := unseal(file)
	if !ok {
		return nil, fmt.Errorf("%w: %s does not match its checksum: %w", ErrFormat, others[0], device.ErrCorrupt)
	}
	return data, nil
}

// WriteCompanion replaces the companion, durably and atomically. Without data it removes it.
// Only the owner may read the file.
func (d *Device) WriteCompanion(data []byte) error {
	if len(data)+sealLength > maxSealed {
		return fmt.Errorf("ssdtier: a companion of %d bytes, more than %d", len(data), maxSealed-sealLength)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	if len(data) == 0 {
		if err := os.Remove(d.path(d.companion)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return wrap(err)
		}
	} else {
		write := func() error { return writeAndRename(d.path(d.companion), seal(data), 0o600, true) }
		if err := d.withSpace(write); err != nil {
			return wrap(err)
		}
	}
	return errors.Join(d.syncNames(), d.removeCompanions(), d.syncNames())
}

// removeCompanions removes the companions of earlier processes. The caller holds mu, and syncs
// the directory.
func (d *Device) removeCompanions() error {
	others, err := d.otherCompanions()
	for _, path := range others {
		if removing := os.Remove(path); removing != nil && !errors.Is(removing, fs.ErrNotExist) {
			err = errors.Join(err, wrap(removing))
		}
	}
	return err
}

// otherCompanions returns the paths of the companions of earlier processes.
func (d *Device) otherCompanions() (paths []string, err error) {
	err = d.eachEntry(func(name string, what kind) error {
		if what == companionFile && name != d.companion {
			paths = append(paths, filepath.Join(d.dir, name))
		}
		return nil
	})
	return paths, err
}
