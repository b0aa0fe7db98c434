package ssdtier

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/redykv/redykv/device"
)

// The file of a truncated segment is kept, and becomes that of a new segment. Its old bytes
// cannot be read: a segment begins without checksums, and a block without one is not held.
//
// A file is reused when no read or write of the old segment is pending, so that none sees
// bytes of the new one.

// spares are files that were segments, under a temporary name.
type spares struct {
	mu    sync.Mutex
	limit int // of files
	files []spare
}

type spare struct {
	path  string
	ready bool // the old segment has closed it
}

// keep adds the file of a segment that is being removed, and reports whether it did. The
// segment calls ready when it has closed the file.
func (k *spares) keep(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	temp := path + tempSuffix
	if len(k.files) >= k.limit || os.Rename(path, temp) != nil {
		return false
	}
	k.files = append(k.files, spare{path: temp})
	return true
}

// ready marks the file that was kept from path as closed.
func (k *spares) ready(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.Index(k.files, spare{path: path + tempSuffix}); i >= 0 {
		k.files[i].ready = true
	}
}

// give renames a file that is ready to path, and reports whether there was one.
func (k *spares) give(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.files, func(s spare) bool { return s.ready })
	if i < 0 {
		return false
	}
	from := k.files[i].path
	k.files = slices.Delete(k.files, i, i+1)
	if os.Rename(from, path) == nil {
		return true
	}
	_ = os.Remove(from) // if that fails, the next Open removes it
	return false
}

// drop removes all files, and reports whether there were any.
func (k *spares) drop() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	had := len(k.files) > 0
	for _, s := range k.files {
		_ = os.Remove(s.path) // as in give
	}
	k.files = nil
	return had
}

// close removes all files, and keeps no more.
func (k *spares) close() {
	k.mu.Lock()
	k.limit = 0
	k.mu.Unlock()
	k.drop()
}

// withSpace calls do, and once more without spares if there is no space. It marks the errors
// after which do may be called again.
func (d *Device) withSpace(do func() error) error {
	err := do()
	if isFull(err) && d.spares.drop() {
		err = do()
	}
	if isFull(err) {
		return fmt.Errorf("%w: %w", device.ErrNoSpace, err)
	}
	return device.MarkTransient(err)
}
