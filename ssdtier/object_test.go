package ssdtier

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
)

// putObject creates an object by writes of up to n bytes.
func putObject(t testing.TB, d *Device, name string, data []byte, n int) {
	t.Helper()
	w, err := d.CreateObject(name)
	if err != nil {
		t.Fatal(err)
	}
	for rest := data; len(rest) > 0 && err == nil; rest = rest[min(n, len(rest)):] {
		_, err = w.Write(rest[:min(n, len(rest))])
	}
	if err := errors.Join(err, w.Commit()); err != nil {
		t.Fatal(err)
	}
}

func TestObjectSizes(t *testing.T) {
	d := started(t, Options{})
	content := make([]byte, 3*objectBuffer+5)
	_, _ = rand.NewChaCha8([32]byte{4}).Read(content) // never fails
	for _, size := range []int{0, 1, sumUnit - 1, sumUnit, sumUnit + 1, objectBuffer, objectBuffer + 1, len(content)} {
		for _, piece := range []int{1000, sumUnit, objectBuffer - 1, objectBuffer, len(content)} {
			putObject(t, d, "x", content[:size], piece)
			o, err := d.OpenObject("x")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()+1))
			if err != nil || !bytes.Equal(got, content[:size]) {
				t.Errorf("%d bytes in pieces of %d: %d bytes, %v", size, piece, len(got), err)
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDamagedObjects changes bytes at many positions of an object's file, one at a time.
// Opening the object or reading the block fails; other blocks are unaffected.
func TestDamagedObjects(t *testing.T) {
	d := started(t, Options{})
	content := make([]byte, 2*sumUnit+100)
	_, _ = rand.NewChaCha8([32]byte{5}).Read(content) // never fails
	putObject(t, d, "x", content, len(content))
	path := d.path(objectPrefix + "x")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(err error) bool {
		return errors.Is(err, device.ErrCorrupt) && strings.Contains(err.Error(), path)
	}
	for at := int64(0); at < info.Size(); at += 37 {
		alter(t, path, at)
		o, err := d.OpenObject("x")
		switch {
		case at >= int64(len(content)):
			if !damaged(err) {
				t.Errorf("byte %d altered: %v, want ErrCorrupt and the file's name", at, err)
			}
		case err != nil:
			t.Errorf("byte %d altered: %v", at, err)
		default:
			for block := int64(0); block < int64(len(content)); block += sumUnit {
				want := content[block:min(int(block)+sumUnit, len(content))]
				got := make([]byte, len(want))
				if _, err := o.ReadAt(got, block); block == at&^(sumUnit-1) {
					if !damaged(err) {
						t.Errorf("byte %d altered: %v, want ErrCorrupt and the file's name", at, err)
					}
				} else if err != nil || !bytes.Equal(got, want) {
					t.Errorf("byte %d altered, reading the block at %d: %v", at, block, err)
				}
			}
			if n, err := o.ReadAt(make([]byte, len(content)), 0); n > int(at) || !damaged(err) {
				t.Errorf("byte %d altered, reading all: %d bytes, %v", at, n, err)
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
		alter(t, path, at)
	}
	for _, end := range []int64{0, 5, sumUnit, info.Size() - 1} {
		if err := os.Truncate(path, end); err != nil {
			t.Fatal(err)
		}
		if _, err := d.OpenObject("x"); !damaged(err) {
			t.Errorf("cut to %d bytes: %v, want ErrCorrupt and the file's name", end, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		putObject(t, d, "x", content, len(content))
	}
}

// TestObjectLeftovers: objects that were not committed leave no file.
func TestObjectLeftovers(t *testing.T) {
	d := started(t, Options{})
	var writers []device.ObjectWriter
	for range 3 {
		w, err := d.CreateObject("x")
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	if err := writers[0].Abort(); err != nil {
		t.Fatal(err)
	}
	temps := func() int {
		files, err := filepath.Glob(d.path("*" + tempSuffix))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	if n := temps(); n != 2 {
		t.Errorf("%d files of 2 objects that are being made", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, d.Dir(), Options{})
	if n := temps(); n != 0 {
		t.Errorf("%d files are left over after opening", n)
	}
	// Writers from before the restart must not affect new objects.
	w, err := d.CreateObject("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := writers[1].Abort(); err != nil {
		t.Error(err)
	}
	if err := writers[2].Commit(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Commit on a closed device: %v", err)
	}
	if err := w.Commit(); err != nil {
		t.Error(err)
	}
}

// FuzzObject opens files of any bytes. All bytes that can be read have matching checksums.
func FuzzObject(f *testing.F) {
	d, err := Open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range []int{0, 1, sumUnit, sumUnit + 100} {
		putObject(f, d, "x", bytes.Repeat([]byte("x"), n), sumUnit)
		data, err := os.ReadFile(d.path(objectPrefix + "x"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	if err := d.Close(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "object.x")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		o, err := openObject(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		got, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
		if !bytes.Equal(got, data[:len(got)]) || err == nil && int64(len(got)) != o.Size() {
			t.Errorf("%d bytes of %d, %v", len(got), o.Size(), err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
}
