package ssdtier

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redykv/redykv/device"
)

// shortOf makes the first opening of each file and of any object fail with an error until the
// test ends. failed collects the files.
func shortOf(t *testing.T, errno syscall.Errno) (failed map[string]bool) {
	t.Helper()
	failed = make(map[string]bool)
	openFile = func(name string, flag int, perm os.FileMode) (*os.File, error) {
		file := name
		if strings.HasPrefix(filepath.Base(name), objectPrefix) { // each attempt uses another file
			file = objectPrefix
		}
		if !failed[file] {
			failed[file] = true
			return nil, &os.PathError{Op: "open", Path: name, Err: errno}
		}
		return os.OpenFile(name, flag, perm)
	}
	t.Cleanup(func() { openFile = os.OpenFile })
	return failed
}

// TestTransient: if a file cannot be opened for want of descriptors, memory or the like, the
// error is transient, and the next attempt succeeds.
func TestTransient(t *testing.T) { overEngines(t, testTransient) }

func testTransient(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN} {
		t.Run(errno.Error(), func(t *testing.T) {
			d := started(t, Options{SegmentSize: minSegmentSize, Preallocate: -1})
			failed := shortOf(t, errno)
			queue, err := d.NewQueue(1)
			if err != nil {
				t.Fatal(err)
			}
			src := device.AlignedBuffer(2*minSegmentSize, d.Alignment())
			for i := range src {
				src[i] = byte(i>>12 + 1)
			}
			var w device.ObjectWriter
			for _, step := range []struct {
				what string
				do   func() error
			}{
				{"a write", func() error {
					return device.Finish(t.Context(), queue, queue.Write(src, 0, 0))
				}},
				{"Sync", d.Sync},
				{"WriteMeta", func() error { return d.WriteMeta("m", make([]byte, journalMetas+1)) }},
				{"CreateObject", func() (err error) { w, err = d.CreateObject("o"); return err }},
				{"Truncate", func() error { return d.Truncate(sumUnit) }},
			} {
				before := len(failed)
				tries := 0
				err := device.Retry(t.Context(), func() error {
					tries++
					err := step.do()
					if err != nil && (!errors.Is(err, device.ErrTransient) || !errors.Is(err, errno) || !strings.Contains(err.Error(), d.Dir())) {
						t.Errorf("%s: %v", step.what, err)
					}
					return err
				})
				if err != nil || tries < 2 {
					t.Errorf("%s: %v after %d tries, %d files were not opened", step.what, err, tries, len(failed)-before)
				}
			}
			if w != nil {
				if _, err := w.Write(src); err != nil {
					t.Error(err)
				}
				if err := w.Commit(); err != nil {
					t.Error(err)
				}
			}
			if err := errors.Join(d.Sync(), queue.Close(), d.Close()); err != nil {
				t.Fatal(err)
			}
			d = mustOpen(t, d.Dir(), Options{})
			if err := d.Start(int64(len(src))); err != nil {
				t.Fatal(err)
			}
			if queue, err = d.NewQueue(1); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(src)-sumUnit)
			err = device.Finish(t.Context(), queue, queue.Read(got, sumUnit, 0))
			if err != nil || !bytes.Equal(got, src[sumUnit:]) {
				t.Errorf("reading it back: %v", err)
			}
			if err := queue.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
