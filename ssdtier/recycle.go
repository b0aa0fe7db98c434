package ssdtier

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/redykv/redykv/device"
)

// The bytes of a file that grows are space that was never written, though it was taken
// ahead: a write there makes the file system note that it is written now, which costs as
// much as the write. A segment that was truncated has space that was. So its file is
// kept, and becomes that of a segment to come. Nothing of what it holds can be read any
// more: a segment begins without checksums, and what has none was never written.
//
// A file is given away when nobody reads or writes it any more, so that no operation on
// the old segment meets bytes of the new one.

// spares are files that were segments, under a temporary name.
type spares struct {
	mu    sync.Mutex
	limit int // of files
	files []spare
}

type spare struct {
	path  string
	ready bool // nobody has it open any more
}

// keep takes the file of a segment that is being removed, and reports whether it did. ready
// must follow.
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

// ready says that a file which was kept from path is not in use any more.
func (k *spares) ready(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.Index(k.files, spare{path: path + tempSuffix}); i >= 0 {
		k.files[i].ready = true
	}
}

// give makes a file that is not in use the one at path, and reports whether there was one.
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
	_ = os.Remove(from) // the next one who opens the directory tries again
	return false
}

// drop gives the space of all files back, and reports whether there were any.
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

// close gives the space of all files back, those that are still in use as well.
func (k *spares) close() {
	k.mu.Lock()
	k.limit = 0
	k.mu.Unlock()
	k.drop()
}

// withSpace does something, and where there is no space for it once more without spares.
// It marks errors after which do may be called again.
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
