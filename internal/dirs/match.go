package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Match returns the paths of the entries of dir whose names match a pattern of [filepath.Match], in
// order. Unlike with [filepath.Glob], the directory is no pattern. One that does not exist has none.
func Match(dir, pattern string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		matches, err := filepath.Match(pattern, e.Name())
		if err != nil {
			return nil, err
		}
		if matches {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}
