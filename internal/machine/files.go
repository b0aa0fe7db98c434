package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/units"
)

// Room returns an error if an existing directory has no room for files of that many bytes: on
// its disk, or in memory if it is there.
func Room(dir string, bytes int64) error {
	_, free, err := DiskBytes(dir)
	if err != nil {
		return err
	}
	what := "are free"
	if available := mem.Available(); InMemory(dir) && available > 0 && available < free {
		free, what = available, "of memory are available, where it is"
	}
	if bytes > free {
		return fmt.Errorf("directory %s: the files need %v, and %v %s", dir, units.Size(bytes), units.Size(free), what)
	}
	return nil
}

// FilesBytes returns the space that the files below a directory take on the disk. Holes do not
// count, nor do files that are removed meanwhile.
func FilesBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil && !entry.IsDir() {
			if info, err = entry.Info(); err == nil {
				sum += allocated(info)
			}
		}
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("size of the files in %s: %w", dir, err)
	}
	return sum, nil
}
