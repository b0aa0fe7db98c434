package open

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
)

// files lists the regular files below a directory, the largest first.
func files(dir string) (paths []string, err error) {
	sizes := map[string]int64{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sizes[path] = info.Size()
			paths = append(paths, path)
		}
		return err
	})
	slices.SortFunc(paths, func(a, b string) int { return int(sizes[b] - sizes[a]) })
	return paths, err
}

// forget removes a store's files from the page cache.
func forget(dir string) error {
	paths, err := files(dir)
	for _, path := range paths {
		f, opened := os.Open(path)
		if err = errors.Join(err, opened); opened == nil {
			err = errors.Join(err, bench.ForgetPages(f), f.Close())
		}
	}
	return err
}

// The disk alone is read as fast tools read one: some threads, large blocks.
const (
	readers = 8
	block   = 1 << 20
)

// diskRate reads a number of bytes of a store's files from the disk, past the page cache, and
// returns bytes a second; 0 if there are none to read.
func diskRate(ctx context.Context, dir string, bytes int64) (rate float64, err error) {
	type place struct {
		file *os.File
		at   int64
	}
	paths, err := files(dir)
	if err != nil {
		return 0, err
	}
	var places []place
	for _, path := range paths {
		if int64(len(places))*block >= bytes {
			break
		}
		f, err := openDirect(path)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		for at := int64(0); at+block <= info.Size() && int64(len(places))*block < bytes; at += block {
			places = append(places, place{f, at})
		}
	}
	if len(places) == 0 {
		return 0, nil
	}
	var next atomic.Int64
	var group errgroup.Group
	began := time.Now()
	for range readers {
		group.Go(func() error {
			buffer := device.AlignedBuffer(block, 4096)
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(places)) {
					return nil
				}
				if _, err := places[i].file.ReadAt(buffer, places[i].at); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	err = group.Wait()
	return float64(len(places)) * block / time.Since(began).Seconds(), err
}
